package sink

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// What was written waits for its sync no longer than it may, and only while
// something waits is there a time to wake up at.
func TestSyncInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := newFiles(new(counters), zerolog.Nop())
		spec := specOf(t, filepath.Join(dir, "$host.log"))
		spec.Sync = Sync(5 * time.Second)
		put := func(name string) {
			t.Helper()
			if err := w.Deliver(batch(t, filepath.Join(dir, name), spec, "m\n"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if !w.Due().IsZero() {
			t.Error("due without a write")
		}
		begin := time.Now()
		put("a.log")
		time.Sleep(2 * time.Second)
		put("b.log")
		if due := w.Due(); due != begin.Add(5*time.Second) || len(w.dirty) != 2 {
			t.Errorf("due after %v, %d files", due.Sub(begin), len(w.dirty))
		}
		w.Tick() // too early
		if len(w.dirty) != 2 {
			t.Error("synced too early")
		}
		time.Sleep(3 * time.Second)
		w.Tick()
		if !w.Due().IsZero() || len(w.dirty) != 0 {
			t.Errorf("%d files wait until %v", len(w.dirty), w.Due())
		}
		put("a.log")
		w.drop(filepath.Join(dir, "a.log")) // is synced as it is closed
		if len(w.dirty) != 0 {
			t.Error("a file that was closed waits for its sync")
		}
		if err := w.Close(nil); err != nil {
			t.Error(err)
		}
	})
}

// The runner wakes up for it, with no batch to come.
func TestSyncWhileIdle(t *testing.T) {
	conf := fileConf(t, filepath.Join(t.TempDir(), "x.log"))
	conf.File.Sync = Sync(50 * time.Millisecond)
	s := start(t, conf)
	put(t, s.Edge(0, nil), message("m"))
	s.Flush()
	s.delivered(1)
	w := s.Sink.run.to.(*files)
	eventually(t, "all is synced", func() bool {
		done := make(chan bool, 1)
		s.Sink.run.change(func() { done <- len(w.dirty) == 0 }) // in the runner's goroutine
		return <-done
	})
	s.finish()
}

// A batch that cannot be synced is taken back and tried again, so that the file
// has it once.
func TestSyncFails(t *testing.T) {
	for _, name := range []string{"x.log", "x.log.gz"} {
		path := filepath.Join(t.TempDir(), name)
		w := newFiles(new(counters), zerolog.Nop())
		spec := specOf(t, path)
		spec.Sync = SyncBatch
		put := func() error { return w.Deliver(batch(t, path, spec, "m\n"), nil) }
		if err := put(); err != nil {
			t.Fatal(err)
		}
		f := w.open[path].Value.(*file)
		good := f.fd
		f.fd = pipeEnd(t) // which cannot be synced
		for range 3 {
			if err := put(); err == nil {
				t.Fatal("no error")
			}
			if got := read(t, path); got != "m\n" {
				t.Fatalf("after a failed sync: %q", got)
			}
		}
		f.fd = good
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(nil); err != nil {
			t.Error(err)
		}
		if got := read(t, path); got != "m\nm\n" {
			t.Errorf("%q", got)
		}
	}
}

// pipeEnd is the descriptor of a pipe.
func pipeEnd(t testing.TB) int {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0]
}
