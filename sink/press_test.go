package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// onCores lets a test have so many.
func onCores(t *testing.T, n int) {
	before := turns
	turns = make(chan struct{}, n)
	t.Cleanup(func() { turns = before })
}

// waiting makes a sink with lines of three hosts in some hundred batches that
// wait for it to run, and what each of the files is to hold.
func waiting(t *testing.T, ending string) (s *running, want map[string]string) {
	t.Helper()
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "logs/$host"+ending))
	conf.Limits.Messages = 20
	s = makeSink(t, conf, newArena(t, 2<<20))
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

// A sink that keeps up leaves the other cores alone.
func TestPressesOfASinkThatKeepsUp(t *testing.T) {
	onCores(t, 4)
	conf := fileConf(t, filepath.Join(t.TempDir(), "out.log.gz"))
	conf.Limits.Messages = 20
	s := makeSink(t, conf, newArena(t, 16<<20))
	e := s.Edge(0, nil)
	for i := range 200 { // ten batches that wait
		put(t, e, fromHost("h", strconv.Itoa(i)))
	}
	s.run()
	s.finish()
	if p := &s.Sink.run.to.(*files).presses; len(p.idle) > 0 {
		t.Errorf("%d members were made ahead", len(p.idle))
	}
}

// slowCompressor holds a core until it is told to let go.
type slowCompressor struct {
	running *atomic.Int32
	release chan struct{}
}

func (c slowCompressor) Member([]byte, gzipwriter.Info) ([]byte, error) {
	c.running.Add(1)
	<-c.release
	return nil, nil
}

// However many sinks make members ahead, they share the cores, and none waits
// for a core of another.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onCores(t, 2)
		spec := &File{Compress: gzipwriter.Gzip, Level: 1}
		with := func(c compressor) press {
			return press{compress: map[compression]compressor{{spec.Compress, spec.Level}: c}}
		}
		slow := slowCompressor{new(atomic.Int32), make(chan struct{})}
		own := slowCompressor{new(atomic.Int32), make(chan struct{})}
		close(own.release)
		var sinks [5]presses
		var batches [len(sinks)]*buffer.Batch
		begin := func(i int) {
			sinks[i] = presses{own: with(own), idle: []*aheadPress{{press: with(slow)}}}
			batches[i] = oneBatch(t)
			sinks[i].begin(batches[i], spec)
		}
		finish := func(i int) {
			if _, err := sinks[i].member(batches[i], spec); err != nil {
				t.Error(err)
			}
			sinks[i].close()
		}
		for i := range sinks {
			begin(i)
		}
		synctest.Wait()
		for i := range sinks[2:] {
			finish(2 + i)
		}
		if ahead, now := slow.running.Load(), own.running.Load(); ahead != 2 || now != 3 {
			t.Errorf("%d members were begun ahead, %d made in their turn; want 2 and 3", ahead, now)
		}
		slow.release <- struct{}{}
		synctest.Wait()
		begin(4)
		synctest.Wait()
		if n := slow.running.Load(); n != 3 {
			t.Errorf("%d members were begun ahead when one was made, want 3", n)
		}
		close(slow.release)
		for _, i := range []int{0, 1, 4} {
			finish(i)
		}
	})
}

// oneBatch is a batch of one message.
func oneBatch(t *testing.T) *buffer.Batch {
	arena := newArena(t, 1<<20)
	buf := buffer.New("sink", arena.Share(arena.Size()), buffer.Limits{Messages: 1, Bytes: 1 << 10, Flush: time.Second})
	buf.Begin()
	buf.Append([]byte("key"), []byte("text"), true, time.Now())
	buf.End()
	b, _ := buf.Next()
	return b
}
