package proc

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOpenFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	p, err := OpenFIFO(path, 0o622)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeNamedPipe|0o622 {
		t.Errorf("made as %v, %v", info.Mode(), err) // 0622 & 022 would be 0600
	}
	if p.Size() < defaultPipe || p.Size() < maxPipe() && os.Getuid() == 0 {
		t.Errorf("holds %d bytes", p.Size())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err = OpenFIFO(path, 0o622); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if info, err = os.Stat(path); err != nil || info.Mode() != fs.ModeNamedPipe|0o600 {
		t.Errorf("one that was there became %v, %v", info.Mode(), err)
	}
}

func TestOpenFIFORefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir, filepath.Join(dir, "none", "fifo"), filepath.Join(file, "fifo")} {
		p, err := OpenFIFO(path, 0o622)
		if err == nil {
			p.Close()
			t.Errorf("%s: opened", path)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name it: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// Writers come and go: what each wrote is read, and the stream goes on.
func TestFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	pipe, err := OpenFIFO(path, 0o622)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	var got records
	stop := start(t, NewReader(pipe, newPoller(t), LineConfig{}, got.take))
	for i, text := range []string{"first\n", "second\n"} {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		w.Close()
		eventually(t, text, func() bool { return got.len() == i+1 })
	}
	stop()
	got.expect(t, "first\n", "second\n")
}

// What standard input may be: each kind is read to its end, and the shared
// description does not become non-blocking.
func TestOpenStdin(t *testing.T) {
	text := x(70_000) + "\nlast"
	tests := []struct {
		name     string
		blocking bool // it cannot be opened anew
		open     func(t *testing.T) (in *os.File, out func(string))
	}{
		{"pipe", false, func(t *testing.T) (*os.File, func(string)) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return r, writeTo(t, w)
		}},
		{"regular file", true, func(t *testing.T) (*os.File, func(string)) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			return f, func(string) {}
		}},
		{"socket", true, func(t *testing.T) (*os.File, func(string)) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return os.NewFile(uintptr(fds[0]), "in"), writeTo(t, os.NewFile(uintptr(fds[1]), "out"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, out := tt.open(t)
			defer in.Close()
			fd := int(in.Fd()) // also makes it blocking, as standard input is
			pipe, err := openShared(fd, "standard input")
			if err != nil {
				t.Fatal(err)
			}
			defer pipe.Close()
			if pipe.blocking != tt.blocking {
				t.Errorf("blocking: %v", pipe.blocking)
			}
			out(text)
			var got records
			if err := NewReader(pipe, newPoller(t), LineConfig{}, got.take).Run(nil); err != nil {
				t.Error(err)
			}
			got.expect(t, x(70_000)+"\n", "last$")
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("flags %#x, %v", flags, err)
			}
		})
	}
}

// writeTo returns a function that writes text and closes w, in the background.
func writeTo(t *testing.T, w *os.File) func(string) {
	return func(text string) {
		done := make(chan struct{})
		go func() { // ends with its write, which the reader takes
			defer close(done)
			defer w.Close()
			if _, err := w.WriteString(text); err != nil {
				t.Error(err)
			}
		}()
		t.Cleanup(func() { finishes(t, "the write", done) })
	}
}

// A blocking standard input can be stopped while nothing comes in.
func TestBlockingStdinStops(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	pipe, err := openShared(fds[0], "standard input")
	if err != nil {
		t.Fatal(err)
	}
	var got records
	stop := start(t, NewReader(pipe, newPoller(t), LineConfig{}, got.take))
	if _, err := unix.Write(fds[1], []byte("a\nb")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first line", func() bool { return got.len() == 1 })
	stop()
	got.expect(t, "a\n", "b$")
}

func TestOpenStdinClosed(t *testing.T) {
	if _, err := openShared(1<<20, "standard input"); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("error %v", err)
	}
}

// SU01: a read error ends the reader, and is reported with what it was; the
// text before it is kept.
func TestReadError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	in, err := conn.(*net.TCPConn).File() // a descriptor of its own
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	defer in.Close()

	pipe, err := openShared(int(in.Fd()), "input")
	if err != nil {
		t.Fatal(err)
	}
	var got records
	result := make(chan error, 1)
	r := NewReader(pipe, newPoller(t), LineConfig{}, got.take)
	go func() { result <- r.Run(nil) }() // ends with the connection
	if _, err := client.Write([]byte("a\nb")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first line", func() bool { return got.len() == 1 })
	client.(*net.TCPConn).SetLinger(0) // a reset, not an end
	client.Close()
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), "input") || !strings.Contains(err.Error(), "reset") {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the reader goes on")
	}
	got.expect(t, "a\n", "b$")
}
