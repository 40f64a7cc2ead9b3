package gzipwriter

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// repaired repairs a file of data and returns what it and its .torn hold then.
func repaired(t *testing.T, data []byte) (left, torn []byte, cut int64, err error) {
	t.Helper()
	f := create(t, data)
	cut, err = Repair(f)
	torn, tornErr := os.ReadFile(f.Name() + ".torn")
	if (tornErr == nil) != (cut > 0) {
		t.Fatalf("cut %d, .torn: %v", cut, tornErr)
	}
	return content(t, f.Name()), torn, cut, err
}

// GZ01: whatever part of a member the last write left, the members before it
// stay, and the part is kept beside them.
func TestRepairCutAnywhere(t *testing.T) {
	list := batches(t, 10, 400)
	file, _ := join(list)
	whole, _ := join(list[:9])
	for at := len(whole) + 1; at < len(file); at++ {
		left, torn, cut, err := repaired(t, file[:at])
		if err != nil || cut != int64(at-len(whole)) {
			t.Fatalf("cut at %d: %d, %v", at, cut, err)
		}
		if !bytes.Equal(left, whole) || !bytes.Equal(torn, file[len(whole):at]) {
			t.Fatalf("cut at %d: %d bytes left, %d in .torn", at, len(left), len(torn))
		}
	}
}

func TestRepair(t *testing.T) {
	list := batches(t, 4, 4000)
	file, _ := join(list)
	three, _ := join(list[:3])
	two, _ := join(list[:2])
	theirs := foreign(t, "x", accessLines(1, 4000))
	hole := func(m []byte, from int) []byte { return append(bytes.Clone(m[:from]), make([]byte, len(m)-from)...) }
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name string
		data []byte
		left []byte // what remains; nil: untouched, and ErrUntouched
	}{
		{"empty", []byte{}, []byte{}},
		{"whole", file, file},
		{"theirs, whole", cat(theirs, theirs), cat(theirs, theirs)},
		{"theirs, torn after ours", cat(two, theirs[:100]), two},
		{"theirs, torn after theirs", cat(theirs, theirs[:100]), theirs},
		{"zero padding", cat(file, make([]byte, 100_000)), file},
		{"garbage", cat(file, []byte("garbage")), file},
		{"garbage across reads", cat(file, bytes.Repeat([]byte("\x1f\x8b\x08and so on, but no deflate"), 5_000)), file},
		{"hole at the end", cat(three, hole(list[3].member, 300)), three},
		{"hole over two members", cat(two, hole(cat(list[2].member, list[3].member), 300)), two},
		{"holes in the last two", cat(two, hole(list[2].member, 300), hole(list[3].member, 300)), two},
		{"our first member torn", list[0].member[:100], []byte{}},
		{"our first member with a hole", hole(list[0].member, 100), []byte{}},
		{"their first member torn", theirs[:100], nil},
		{"first header torn", list[0].member[:headerLen-1], nil},
		{"first header damaged", cat([]byte{0}, file[1:]), nil},
		{"no gzip", []byte("127.0.0.1 - - GET\n"), nil},
		{"zeros", make([]byte, 5000), nil},
		{"damaged middle", cat(two, hole(list[2].member, 30), list[3].member), nil},
		{"damaged middle far away", cat(two, make([]byte, readBuffer-2), list[3].member), nil},
		{"damaged middle, theirs after", cat(two, []byte("x"), theirs), nil},
		{"first damaged, ours after", cat(hole(list[0].member, 100), list[1].member), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, torn, cut, err := repaired(t, c.data)
			if c.left == nil {
				if !errors.Is(err, ErrUntouched) || cut != 0 || !bytes.Equal(left, c.data) {
					t.Errorf("cut %d, %v; %d bytes of %d", cut, err, len(left), len(c.data))
				}
				return
			}
			if err != nil || !bytes.Equal(left, c.left) || !bytes.Equal(torn, c.data[len(c.left):]) {
				t.Errorf("cut %d, %v; %d bytes left, %d torn", cut, err, len(left), len(torn))
			}
		})
	}
}

// The torn file is added to, keeps its mode, and gets that of the file if new.
func TestRepairTwice(t *testing.T) {
	file, _ := join(batches(t, 2, 1000))
	f := create(t, append(bytes.Clone(file), "first"...))
	if err := f.Chmod(0o606); err != nil {
		t.Fatal(err)
	}
	o := openFile(t, f)
	for i, tail := range []string{"first", "second"} {
		if i > 0 {
			if _, err := AppendFile(o, []byte(tail)); err != nil {
				t.Fatal(err)
			}
		}
		if cut, err := Repair(f); cut != int64(len(tail)) || err != nil {
			t.Fatal(cut, err)
		}
		if cut, err := Repair(f); cut != 0 || err != nil {
			t.Fatal("again:", cut, err)
		}
	}
	if got := content(t, f.Name()+".torn"); string(got) != "firstsecond" {
		t.Errorf(".torn holds %q", got)
	}
	stat, err := os.Stat(f.Name() + ".torn")
	if err != nil || stat.Mode() != 0o606 {
		t.Errorf("mode %v, %v", stat.Mode(), err)
	}
	if !bytes.Equal(content(t, f.Name()), file) {
		t.Error("the file is not what it was")
	}
}

// Where the tail cannot be kept it is not cut.
func TestRepairKeepsWhatItCannotSave(t *testing.T) {
	file, _ := join(batches(t, 2, 1000))
	data := append(bytes.Clone(file), "tail"...)
	for name, prepare := range map[string]func(torn string) error{
		"symbolic link": func(torn string) error { return os.Symlink("/etc/passwd", torn) },
		"folder":        func(torn string) error { return os.Mkdir(torn, 0o755) },
		"FIFO":          func(torn string) error { return unix.Mkfifo(torn, 0o600) },
		"no room":       func(torn string) error { return os.Symlink("/dev/full", torn) },
	} {
		t.Run(name, func(t *testing.T) {
			f := create(t, data)
			if err := prepare(f.Name() + ".torn"); err != nil {
				t.Skip(err)
			}
			cut, err := Repair(f)
			if cut != 0 || err == nil || errors.Is(err, ErrUntouched) || !bytes.Equal(content(t, f.Name()), data) {
				t.Errorf("cut %d, %v", cut, err)
			}
		})
	}
}

// A full disk has room for a part of the tail: then none of it is kept twice.
func TestRepairFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no tmpfs of our own: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, old := range []string{"", "old"} {
		f := create(t, nil)
		moved, err := os.OpenFile(dir+"/x.gz", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		file, _ := join(batches(t, 1, 1000))
		if _, err := moved.Write(append(file, make([]byte, 40<<10)...)); err != nil {
			t.Fatal(err)
		}
		torn := moved.Name() + ".torn"
		if old != "" {
			if err := os.WriteFile(torn, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if cut, err := Repair(moved); cut != 0 || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("cut %d, %v", cut, err)
		}
		if got, err := os.ReadFile(torn); string(got) != old || (err == nil) != (old != "") {
			t.Errorf(".torn holds %d bytes, want %q, %v", len(got), old, err)
		}
		if got := content(t, moved.Name()); len(got) != len(file)+40<<10 {
			t.Errorf("%d bytes left of %d", len(got), len(file)+40<<10)
		}
		moved.Close()
	}
}

func TestRepairReadError(t *testing.T) {
	file, _ := join(batches(t, 3, 1000))
	end, err := tornFrom(&countingReader{r: bytes.NewReader(file), fail: int64(len(file)) - 1}, int64(len(file)))
	if end != 0 || !errors.Is(err, unix.EIO) || errors.Is(err, ErrUntouched) {
		t.Errorf("end %d, %v", end, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if cut, err := Repair(w); cut != 0 || err == nil {
		t.Errorf("a pipe: cut %d, %v", cut, err)
	}
}

func TestEndsWithNewline(t *testing.T) {
	for data, expected := range map[string]bool{"": true, "\n": true, "a\nb\n": true, "a\nb": false, "a\r": false} {
		f := create(t, []byte(data))
		if got, err := EndsWithNewline(f); got != expected || err != nil {
			t.Errorf("%q: %v, %v", data, got, err)
		}
	}
	f := create(t, nil)
	f.Close()
	if got, err := EndsWithNewline(f); got || !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v, %v", got, err)
	}
}
