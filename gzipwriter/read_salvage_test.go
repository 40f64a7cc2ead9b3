package gzipwriter

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSalvage(t *testing.T) {
	list := batches(t, 4, 3000)
	text := accessLines(1, 3000)
	frame, theirs := zframe(t, text), foreign(t, "", text)
	bad := bytes.Clone(list[1].member)
	bad[300] ^= 1
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	m := func(i int) []byte { return list[i].member }
	for _, c := range []struct {
		name             string
		file, left, torn []byte // left nil: untouched, with ErrUntouched
		pieces           int
	}{
		{"whole", cat(m(0), m(1)), cat(m(0), m(1)), nil, 0},
		{"empty", []byte{}, nil, nil, 0},
		{"middle", cat(m(0), bad, m(2)), cat(m(0), m(2)), bad, 1},
		{"first", cat(bad, m(2)), m(2), bad, 1},
		{"two places and a tail", cat(m(0), bad, m(2), bad, m(3), []byte("x")), cat(m(0), m(2), m(3)), cat(bad, bad, []byte("x")), 3},
		{"theirs", cat(theirs, []byte("garbage"), theirs), cat(theirs, theirs), []byte("garbage"), 1},
		{"zstd", cat(frame, frame[:99], frame), cat(frame, frame), frame[:99], 1},
		{"zstd torn", cat(frame, frame[:99]), frame, frame[:99], 1},
		{"plain", text, nil, nil, 0},
		{"nothing whole", bad, nil, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := create(t, c.file)
			do(t, f.Chmod(0o604))
			cut, pieces, err := Salvage(f)
			left := content(t, f.Name())
			torn, _ := os.ReadFile(f.Name() + ".torn")
			if _, err := os.Lstat(f.Name() + ".repair"); err == nil {
				t.Error(".repair is left")
			}
			stat, statErr := os.Stat(f.Name())
			if statErr != nil || stat.Mode() != 0o604 {
				t.Error(stat.Mode(), statErr)
			}
			if c.left == nil {
				if !errors.Is(err, ErrUntouched) || !bytes.Equal(left, c.file) || torn != nil {
					t.Errorf("%v; %d bytes of %d left", err, len(left), len(c.file))
				}
				return
			}
			if err != nil || cut != int64(len(c.torn)) || pieces != c.pieces || !bytes.Equal(left, c.left) || !bytes.Equal(torn, c.torn) {
				t.Errorf("cut %d in %d pieces, %v; %d bytes left, want %d, %d torn", cut, pieces, err, len(left), len(c.left), len(torn))
			}
		})
	}
}

// Where what was cut, or the new file, cannot be kept, nothing changes.
func TestSalvageKeepsWhatItCannotSave(t *testing.T) {
	list := batches(t, 2, 1000)
	data := bytes.Join([][]byte{list[0].member, []byte("garbage"), list[1].member}, nil)
	for name, prepare := range map[string]func(name string) error{
		".torn is a link":   func(name string) error { return os.Symlink("/dev/null", name+".torn") },
		".torn is a FIFO":   func(name string) error { return unix.Mkfifo(name+".torn", 0o600) },
		".repair is there":  func(name string) error { return os.WriteFile(name+".repair", []byte("old"), 0o600) },
		".repair is a link": func(name string) error { return os.Symlink(name, name+".repair") },
		".repair, and old torn": func(name string) error {
			return errors.Join(os.WriteFile(name+".repair", []byte("old"), 0o600), os.WriteFile(name+".torn", []byte("old"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := create(t, data)
			do(t, prepare(f.Name()))
			regular := func() bool {
				stat, err := os.Lstat(f.Name() + ".torn")
				return err == nil && stat.Mode().IsRegular()
			}
			had := regular()
			if cut, _, err := Salvage(f); cut != 0 || err == nil || errors.Is(err, ErrUntouched) {
				t.Errorf("cut %d, %v", cut, err)
			}
			if !bytes.Equal(content(t, f.Name()), data) {
				t.Error("the file has changed")
			}
			if regular() != had || had && string(content(t, f.Name()+".torn")) != "old" {
				t.Error(".torn has changed")
			}
		})
	}
}

// Repair, as at the start of a daemon, cuts a torn frame too.
func TestRepairZstd(t *testing.T) {
	frame := zframe(t, accessLines(1, 3000))
	both := append(bytes.Clone(frame), frame...)
	for at := len(frame); at < len(both); at++ {
		left, torn, cut, err := repaired(t, both[:at])
		if err != nil || cut != int64(at-len(frame)) || !bytes.Equal(left, frame) || !bytes.Equal(torn, both[len(frame):at]) && cut > 0 {
			t.Fatalf("cut at %d: %d, %v", at, cut, err)
		}
	}
	if left, _, cut, err := repaired(t, both); cut != 0 || err != nil || !bytes.Equal(left, both) {
		t.Errorf("whole: cut %d, %v", cut, err)
	}
	hole := append(bytes.Clone(frame), make([]byte, 100)...)
	if left, _, cut, err := repaired(t, hole); cut != 100 || err != nil || !bytes.Equal(left, frame) {
		t.Errorf("padding: cut %d, %v", cut, err)
	}
}
