package gzipwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// step is what one Write of a double does: take n bytes (-1: all), then err.
type step struct {
	n   int
	err error
}

// fakeFile is an O_APPEND file, or a pipe, whose writes follow a script. Beyond
// its end they take all.
type fakeFile struct {
	data     []byte
	pipe     bool
	steps    []step
	tailErr  error
	truncErr error
	between  func(*fakeFile) // somebody else, after a short write

	written int64
	writes  int
}

func (f *fakeFile) Write(p []byte) (int, error) {
	s := step{n: -1}
	if f.writes < len(f.steps) {
		s = f.steps[f.writes]
	}
	f.writes++
	if s.n < 0 || s.n > len(p) {
		s.n = len(p)
	}
	f.data = append(f.data, p[:s.n]...)
	f.written = int64(len(f.data))
	if f.between != nil && s.n < len(p) {
		f.between(f)
	}
	return s.n, s.err
}

func (f *fakeFile) Regular() bool { return !f.pipe }

func (f *fakeFile) Tail() (int64, int64, error) { return f.written, int64(len(f.data)), f.tailErr }

func (f *fakeFile) Truncate(size int64) error {
	if f.truncErr != nil {
		return f.truncErr
	}
	if size > int64(len(f.data)) {
		return fmt.Errorf("truncate to %d would grow the file from %d", size, len(f.data))
	}
	f.data = f.data[:size]
	return nil
}

func TestAppendFile(t *testing.T) {
	cut := func(n int) func(*fakeFile) { return func(f *fakeFile) { f.data = f.data[:n] } }
	for _, c := range []struct {
		name   string
		file   fakeFile
		n      int
		err    error // nil, or what it must be
		torn   bool
		data   string // after the append of "member" to "old."
		writes int
	}{
		{name: "whole", n: 6, data: "old.member", writes: 1},
		{name: "signal first", file: fakeFile{steps: []step{{0, unix.EINTR}, {0, unix.EINTR}}}, n: 6, data: "old.member", writes: 3},
		{name: "full", file: fakeFile{steps: []step{{0, unix.ENOSPC}}}, err: unix.ENOSPC, data: "old.", writes: 1},
		{name: "quota", file: fakeFile{steps: []step{{0, unix.EDQUOT}}}, err: unix.EDQUOT, data: "old.", writes: 1},
		{name: "short", file: fakeFile{steps: []step{{2, nil}}}, err: io.ErrShortWrite, data: "old.", writes: 1},
		{name: "short, with its reason", file: fakeFile{steps: []step{{5, unix.EIO}}}, err: unix.EIO, data: "old.", writes: 1},
		{name: "signal in the middle", file: fakeFile{steps: []step{{3, unix.EINTR}}}, err: unix.EINTR, data: "old.", writes: 1},
		{name: "nothing, no reason", file: fakeFile{steps: []step{{0, nil}}}, err: io.ErrShortWrite, data: "old.", writes: 1},
		{name: "cannot be cut", file: fakeFile{steps: []step{{2, unix.ENOSPC}}, truncErr: unix.EROFS},
			n: 2, err: unix.EROFS, torn: true, data: "old.me", writes: 1},
		{name: "length unknown", file: fakeFile{steps: []step{{2, unix.ENOSPC}}, tailErr: unix.EIO},
			n: 2, err: unix.ENOSPC, torn: true, data: "old.me", writes: 1},
		{name: "copytruncate", file: fakeFile{steps: []step{{2, unix.ENOSPC}}, between: cut(0)},
			err: unix.ENOSPC, data: "", writes: 1},
		{name: "truncated within our piece", file: fakeFile{steps: []step{{2, unix.ENOSPC}}, between: cut(5)},
			err: unix.ENOSPC, data: "old.", writes: 1},
		{name: "another appended", file: fakeFile{steps: []step{{2, nil}}, between: func(f *fakeFile) { f.data = append(f.data, "THEIRS"...) }},
			n: 2, err: errFollowed, torn: true, data: "old.meTHEIRS", writes: 1},
		{name: "pipe goes on", file: fakeFile{pipe: true, steps: []step{{1, nil}, {2, nil}, {0, unix.EINTR}}}, n: 6, data: "old.member", writes: 4},
		{name: "pipe breaks", file: fakeFile{pipe: true, steps: []step{{1, nil}, {2, nil}, {0, unix.EPIPE}}}, n: 3, err: unix.EPIPE, data: "old.mem", writes: 3},
		{name: "pipe stands still", file: fakeFile{pipe: true, steps: []step{{1, nil}, {0, nil}}}, n: 1, err: io.ErrShortWrite, data: "old.m", writes: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &c.file
			f.data = []byte("old.")
			n, err := AppendFile(f, []byte("member"))
			if n != c.n || !errors.Is(err, c.err) || errors.Is(err, ErrTorn) != c.torn {
				t.Errorf("AppendFile = %d, %v", n, err)
			}
			if string(f.data) != c.data || f.writes != c.writes {
				t.Errorf("%d writes left %q", f.writes, f.data)
			}
		})
	}
}

func TestAppendNothing(t *testing.T) {
	f := new(fakeFile)
	if n, err := AppendFile(f, nil); n != 0 || err != nil || f.writes != 0 {
		t.Errorf("AppendFile of nothing = %d, %v after %d writes", n, err, f.writes)
	}
}

// GZ02: of a 50,000-byte member 20,000 bytes fit; then there is room again.
func TestShortWriteThenRoom(t *testing.T) {
	list := batches(t, 3, 320_000)
	if n := len(list[1].member); n < 50_000 {
		t.Fatalf("a member of %d bytes is too short for this test", n)
	}
	f := &fakeFile{steps: []step{{-1, nil}, {20_000, nil}, {0, unix.ENOSPC}}}
	for _, b := range list {
		for try := 0; ; try++ {
			n, err := AppendFile(f, b.member)
			gunzip(t, f.data) // whole after each attempt
			if err == nil {
				break
			}
			if n != 0 || try == 2 {
				t.Fatalf("attempt %d: %d, %v", try, n, err)
			}
		}
	}
	members, text := join(list)
	if !bytes.Equal(f.data, members) || !bytes.Equal(gunzip(t, f.data), text) {
		t.Error("lines were lost or doubled")
	}
	if f.writes != 5 {
		t.Errorf("%d writes, want 3 and 2 that failed", f.writes)
	}
}

// GZ02 again, on a real file system that is really full.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no tmpfs of our own: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name string
		flag int
	}{{"append", os.O_APPEND}, {"offset", 0}} {
		t.Run(c.name, func(t *testing.T) { fillDisk(t, dir, c.flag) })
	}
}

// fillDisk appends members to a file in dir until it is full, makes room, and
// goes on.
func fillDisk(t *testing.T, dir string, flag int) {
	file, err := os.OpenFile(filepath.Join(dir, "x.gz"), os.O_RDWR|os.O_CREATE|flag, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := batches(t, 4, 250_000)
	members, text := join(list)
	failed, short := 0, 0
	for _, b := range list {
		n, err := AppendFile(f, b.member)
		for ; err != nil && failed < 3; failed++ {
			if n != 0 || !errors.Is(err, io.ErrShortWrite) && !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("AppendFile = %d, %v", n, err)
			}
			if errors.Is(err, io.ErrShortWrite) {
				short++
			}
			gunzip(t, content(t, file.Name()))
			if failed == 1 {
				os.Remove(ballast)
			}
			n, err = AppendFile(f, b.member)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if failed != 2 || short == 0 {
		t.Errorf("%d appends failed, %d of them short: the disk was not full in the middle of a member", failed, short)
	}
	got := content(t, file.Name())
	if !bytes.Equal(got, members) || !bytes.Equal(gunzip(t, got), text) {
		t.Error("lines were lost or doubled")
	}
}

// openFile is f as AppendFile wants it.
func openFile(t *testing.T, f *os.File) *OSFile {
	t.Helper()
	o, err := NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAppendAfterCopytruncate(t *testing.T) {
	list := batches(t, 2, 1000)
	f := create(t, nil)
	o := openFile(t, f)
	for _, b := range list {
		if n, err := AppendFile(o, b.member); n != len(b.member) || err != nil {
			t.Fatal(n, err)
		}
		if !bytes.Equal(content(t, f.Name()), b.member) {
			t.Error("the file does not hold the member alone")
		}
		if err := os.Truncate(f.Name(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAppendErrors(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	o := openFile(t, full)
	if n, err := AppendFile(o, []byte("x")); n != 0 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("full: %d, %v", n, err)
	}
	full.Close()
	if n, err := AppendFile(o, []byte("x")); n != 0 || err == nil {
		t.Errorf("closed: %d, %v", n, err)
	}
	if _, err := NewFile(full); !errors.Is(err, os.ErrClosed) {
		t.Errorf("NewFile of a closed file: %v", err)
	}
	ro, err := os.Open(create(t, nil).Name())
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if n, err := AppendFile(openFile(t, ro), []byte("x")); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("read-only: %d, %v", n, err)
	}
}

// A pipe takes less than a member; its reader is slow. Both kinds of
// descriptor: a blocking one, and one that the runtime polls.
func TestAppendToPipe(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	for _, flags := range []int{0, unix.O_NONBLOCK} {
		t.Run(fmt.Sprintf("flags %#x", flags), func(t *testing.T) {
			var fd [2]int
			if err := unix.Pipe2(fd[:], unix.O_CLOEXEC|flags); err != nil {
				t.Fatal(err)
			}
			r, w := os.NewFile(uintptr(fd[0]), "r"), os.NewFile(uintptr(fd[1]), "w")
			defer r.Close()
			var got []byte
			done := make(chan error, 1)
			go func() { // ends with the pipe
				var err error
				got, err = io.ReadAll(r)
				done <- err
			}()
			n, err := AppendFile(openFile(t, w), data)
			w.Close()
			if n != len(data) || err != nil {
				t.Errorf("AppendFile = %d, %v", n, err)
			}
			select {
			case err := <-done:
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the reader saw no end")
			}
		})
	}
}

func TestAppendToBrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	if n, err := AppendFile(openFile(t, w), []byte("x")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("AppendFile = %d, %v", n, err)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer null.Close()
	for name, f := range map[string]*os.File{"null": null, "file": create(t, nil)} {
		o, p := openFile(t, f), []byte("member")
		if n := testing.AllocsPerRun(100, func() {
			if _, err := AppendFile(o, p); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations an append", name, n)
		}
	}
}
