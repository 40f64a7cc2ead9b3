package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// onCores lets a test have so many.
func onCores(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// waiting makes a sink with lines of three hosts in some hundred batches that
// wait for it to run, and what each of the files is to hold.
func waiting(t *testing.T, ending string) (s *running, want map[string]string) {
	t.Helper()
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "logs/$host"+ending))
	conf.Limits.Messages = 20
	s = makeSink(t, conf, newArena(t, 16<<20))
	e := s.Edge(0, nil)
	want = make(map[string]string)
	for i := range 3000 {
		host := fmt.Sprintf("h%d", i%3)
		text := fmt.Sprintf("%d %s", i, strings.Repeat(host, i%100))
		put(t, e, fromHost(host, text))
		want[filepath.Join(dir, "logs", host+ending)] += text + "\n"
	}
	return s, want
}

// Batches that wait are compressed on all cores, and written in order.
func TestPresses(t *testing.T) {
	onCores(t, 4)
	for _, ending := range []string{".log.gz", ".log"} {
		s, want := waiting(t, ending)
		s.run()
		s.finish()
		for path, text := range want {
			if got := read(t, path); got != text {
				t.Errorf("%s: %d bytes, want %d in the order they came", path, len(got), len(text))
			}
		}
		p := &s.Sink.run.to.(*files).presses
		if made := len(p.idle); (made == 0) == (ending != ".log") || made > 4 || len(p.ahead) > 0 {
			t.Errorf("%s: %d presses were made on 4 cores, %d are not done", ending, made, len(p.ahead))
		}
	}
}

// What was compressed ahead of a batch that cannot be written is dropped: it is
// made again, and memory stays bounded.
func TestPressesOfPathsThatFail(t *testing.T) {
	onCores(t, 4)
	s, want := waiting(t, ".log.gz")
	dir := s.Sink.conf.Path.Prefix()
	content(t, dir, nil) // no folder, and so no file in it
	s.run()
	eventually(t, "it has been tried again", func() bool { return s.Status().Retries > 2 })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.finish()
	for path, text := range want {
		if got := read(t, path); got != text {
			t.Errorf("%s: %d bytes, want %d in the order they came", path, len(got), len(text))
		}
	}
	if p := &s.Sink.run.to.(*files).presses; len(p.idle) > 4 {
		t.Errorf("%d presses were made", len(p.idle))
	}
}

// Nothing reads a batch any more once a sink that gives up has ended.
func TestPressesOfASinkThatGivesUp(t *testing.T) {
	onCores(t, 4)
	for range 20 {
		s, _ := waiting(t, ".log.gz")
		s.run()
		close(s.giveUp)
		<-s.done
		if p := &s.Sink.run.to.(*files).presses; len(p.ahead) > 0 {
			t.Errorf("%d members are being made", len(p.ahead))
		}
		s.Close()
		s.Release()
	}
}
