package sink

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"logboom/buffer"
)

// FI18: an output of the daemon is written to as it is; nothing is sought,
// locked or closed.
func TestDescriptor(t *testing.T) {
	conf := Config{
		Name: "s", Limits: buffer.Limits{Messages: 1 << 20, Bytes: 256 << 10, Flush: never},
		Memory: 8 << 20, Retry: Backoff{Min: time.Millisecond, Max: time.Millisecond},
	}
	conf.File.UID, conf.File.GID = -1, -1
	text := strings.Repeat("a line of some length\n", 20_000) // much more than a pipe holds
	write := func(t *testing.T, f *os.File) {
		t.Helper()
		conf.File.Descriptor = f
		s := start(t, conf)
		if tally := s.Edge(-1, nil).AppendLines(new(Origin), []byte(text), 20_000, time.Now()); tally.Accepted != 20_000 {
			t.Fatalf("tally %+v", tally)
		}
		s.Reopen()
		put(t, s.Edge(0, nil), message("end"))
		s.finish()
		if _, err := f.Stat(); err != nil {
			t.Error("closed: ", err)
		}
	}
	receive := func(r io.Reader) chan string {
		got := make(chan string)
		go func() {
			all, _ := io.ReadAll(r) // a terminal ends in EIO
			got <- string(all)
		}()
		return got
	}
	t.Run("pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got := receive(r)
		write(t, w)
		w.Close()
		if got := <-got; got != text+"end\n" {
			t.Errorf("%d bytes", len(got))
		}
	})
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "out")
		f, err := os.Create(path) // as a shell's >, without O_APPEND
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("before\n"); err != nil {
			t.Fatal(err)
		}
		write(t, f)
		if got := read(t, path); got != "before\n"+text+"end\n" {
			t.Errorf("%d bytes", len(got))
		}
	})
	t.Run("terminal", func(t *testing.T) {
		master, slave := openTerminal(t)
		defer master.Close()
		got := receive(master)
		write(t, slave)
		slave.Close()
		if got := <-got; got != strings.ReplaceAll(text+"end\n", "\n", "\r\n") {
			t.Errorf("%d bytes", len(got))
		}
	})
	t.Run("reader gone", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		r.Close()
		conf.File.Descriptor = w
		s := start(t, conf)
		put(t, s.Edge(0, nil), message("m"))
		s.Flush()
		<-s.Refusals() // it does not come back
		s.Close()
		if left := <-s.done; left != 0 {
			t.Errorf("%d left", left)
		}
		if st := s.Status(); st.Lost[Closed] != 1 || st.LastError == "" {
			t.Errorf("%+v", st)
		}
	})
}

// openTerminal opens both ends of a pseudoterminal, or skips the test.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		t.Skip("no terminals here: ", err)
	}
	return master, slave
}

// A FIFO is a path that is not sought or locked; its reader may come and go.
func TestPathOfFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := start(t, fileConf(t, path))
	put(t, s.Edge(0, nil), message("m"))
	s.Reopen()
	s.finish()
	got := make([]byte, 10)
	if n, err := r.Read(got); err != nil || string(got[:n]) != "m\n" {
		t.Errorf("%q, %v", got[:n], err)
	}
}
