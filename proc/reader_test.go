package proc

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// start runs a reader; the function returned stops it and waits for it.
func start(t *testing.T, r *Reader) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with quit
		defer close(done)
		if err := r.Run(quit); err != nil {
			t.Error(err)
		}
	}()
	return func() {
		close(quit)
		finishes(t, "the reader", done)
	}
}

// newPipe is a pipe as a child gets it.
func newPipe(t testing.TB) (*Pipe, *os.File) {
	t.Helper()
	r, w, err := childPipe("pipe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// PI05, PI07, PI09: lines of any length up to the limit arrive whole, through
// a pipe that is smaller than they are.
func TestReaderWholeLines(t *testing.T) {
	pipe, w := newPipe(t)
	var want []string
	for _, n := range []int{6, 16_383, 16_384, 16_385, 65_536, 70_000, 100_000, 0, 1 << 20, 5} {
		want = append(want, x(n)+"\n")
	}
	writeTo(t, w)(strings.Join(want, ""))
	var got records
	if err := NewReader(pipe, newPoller(t), LineConfig{}, got.take).Run(nil); err != nil {
		t.Error(err)
	}
	got.expect(t, want...)
}

// At a stop all that the pipe holds is given out, and a partial line.
func TestReaderStopDrains(t *testing.T) {
	pipe, w := newPipe(t)
	text := strings.Repeat("line\n", 10_000)
	if _, err := w.WriteString(text + "partial"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	var got records
	if err := NewReader(pipe, newPoller(t), LineConfig{}, got.take).Run(stop); err != nil {
		t.Error(err)
	}
	if got.len() != 10_001 || string(got.text) != text+"partial" || got.bad != "" {
		t.Errorf("%d records, %d bytes, bad block %q", got.len(), len(got.text), got.bad)
	}
}

// A writer that never pauses does not hold up a stop.
func TestReaderStopIsBounded(t *testing.T) {
	pipe, w := newPipe(t)
	var wrote atomic.Int64
	ended := make(chan struct{})
	go func() { // ends with the pipe's read end
		defer close(ended)
		line := append(bytes.Repeat([]byte{'y'}, 99), '\n')
		for {
			n, err := w.Write(line)
			wrote.Add(int64(n))
			if err != nil {
				if !errors.Is(err, syscall.EPIPE) {
					t.Error(err)
				}
				return
			}
		}
	}()
	var got records
	stop := start(t, NewReader(pipe, newPoller(t), LineConfig{}, got.take))
	eventually(t, "some lines", func() bool { return got.len() > 10_000 })
	stop()
	pipe.Close()
	finishes(t, "the writer", ended)
	if lost := wrote.Load() - int64(len(got.text)); lost < 0 || lost > int64(pipe.Size())+100 {
		t.Errorf("%d bytes read, %d written", len(got.text), wrote.Load())
	}
}

func TestReaderPartialTimeout(t *testing.T) {
	pipe, w := newPipe(t)
	var got records
	stop := start(t, NewReader(pipe, newPoller(t), LineConfig{PartialTimeout: 30 * time.Millisecond}, got.take))
	w.WriteString("prompt> ")
	eventually(t, "the piece", func() bool { return got.len() == 1 })
	w.WriteString("yes\nnext\n")
	eventually(t, "the rest", func() bool { return got.len() == 3 })
	stop()
	got.expect(t, "…prompt> ", "…yes\n", "next\n")
}

// A handler that blocks makes the writer wait, and loses nothing.
func TestReaderBackpressure(t *testing.T) {
	pipe, w := newPipe(t)
	const size = 8 << 20
	writeTo(t, w)(strings.Repeat(x(1023)+"\n", size>>10))
	var got records
	open := make(chan struct{})
	done := make(chan struct{})
	r := NewReader(pipe, newPoller(t), LineConfig{}, func(b Block) {
		<-open
		got.take(b)
	})
	go func() { // ends with the writer
		defer close(done)
		if err := r.Run(nil); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "a full pipe", func() bool { return pipe.waiting() >= pipe.Size()-4096 })
	close(open)
	finishes(t, "the reader", done)
	if got.len() != size>>10 || len(got.text) != size || got.bad != "" {
		t.Errorf("%d records, %d bytes, bad block %q", got.len(), len(got.text), got.bad)
	}
}

func TestReaderAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are not counted under the race detector")
	}
	pipe, w := newPipe(t)
	lines := 0
	r := NewReader(pipe, newPoller(t), LineConfig{PartialTimeout: time.Hour}, func(b Block) { lines += b.Lines })
	text := []byte(strings.Repeat("a line\n", 500) + "rest")
	if n := testing.AllocsPerRun(100, func() {
		w.Write(text)
		if n, _, err := r.drain(); n != len(text) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		r.drain() // and an empty one
	}); n != 0 {
		t.Errorf("%v allocations a drain", n)
	}
	if lines != 101*500 {
		t.Errorf("%d lines", lines)
	}
}
