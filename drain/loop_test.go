package drain

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reader is a Drain over a pipe that counts.
type reader struct {
	fd     int
	bytes  atomic.Int64
	drains atomic.Int64
}

func (r *reader) drain() (units int, again time.Duration, err error) {
	r.drains.Add(1)
	var buf [4096]byte
	for {
		n, err := unix.Read(r.fd, buf[:])
		switch {
		case err == unix.EAGAIN:
			r.bytes.Add(int64(units))
			return units, 0, nil
		case err != nil:
			return units, 0, err
		case n == 0:
			r.bytes.Add(int64(units))
			return units, 0, io.EOF
		}
		units += n
	}
}

// start runs a loop and returns how to stop it, with what it returned.
func start(l *Loop) (stop func() error) {
	done, quit := make(chan error, 1), make(chan struct{})
	go func() { done <- l.Run(quit) }()
	return func() error { close(quit); return <-done }
}

func pipeRoom() int { return 65536 }

func TestLoop(t *testing.T) {
	for _, interval := range []time.Duration{0, 20 * time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			fd, w := newPipe(t)
			r := &reader{fd: fd}
			stop := start(&Loop{FD: fd, Poller: newPoller(t), Room: pipeRoom, Target: 4096, MaxInterval: interval, Drain: r.drain})
			for i := range int64(200) {
				write(t, w, "0123456789")
				if i%20 == 0 {
					eventually(t, "all is drained", func() bool { return r.bytes.Load() == 10*(i+1) })
				}
			}
			eventually(t, "all is drained", func() bool { return r.bytes.Load() == 2000 })
			if err := stop(); err != nil {
				t.Errorf("Run after stop: %v", err)
			}
		})
	}
}

func TestLoopEndsWithDrainsError(t *testing.T) {
	for _, interval := range []time.Duration{0, 20 * time.Millisecond} {
		fd, w := newPipe(t)
		write(t, w, "the last words")
		unix.Close(w)
		r := &reader{fd: fd}
		l := &Loop{FD: fd, Poller: newPoller(t), Room: pipeRoom, Target: 1, MaxInterval: interval, Drain: r.drain}
		if err := l.Run(nil); err != io.EOF || r.bytes.Load() != 14 {
			t.Errorf("Run = %v after %d bytes, want EOF after 14", err, r.bytes.Load())
		}
	}
}

// TestLoopParks counts the drains that one arrival costs an idle loop: the one
// that takes it, three that find nothing, and then none until the next.
func TestLoopParks(t *testing.T) {
	p := newPoller(t)
	fd, w := newPipe(t)
	r := &reader{fd: fd}
	stop := start(&Loop{FD: fd, Poller: p, Room: pipeRoom, Target: 4096, MaxInterval: 20 * time.Millisecond, Drain: r.drain})
	eventually(t, "it parks", parked(p, 1))
	if n := r.drains.Load(); n != 1 {
		t.Errorf("%d drains before the first park", n)
	}
	for i := range int64(5) {
		write(t, w, "x")
		want := 1 + 4*(i+1)
		eventually(t, "the arrival is taken", func() bool { return r.drains.Load() >= want })
		eventually(t, "it parks again", parked(p, 1))
		if n := r.drains.Load(); n != want {
			t.Errorf("%d drains after %d arrivals, want %d", n, i+1, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestLoopAgain: text that waits for its time-out is given its call although
// nothing arrives.
func TestLoopAgain(t *testing.T) {
	for _, interval := range []time.Duration{0, 20 * time.Millisecond} {
		fd, _ := newPipe(t)
		calls, over := 0, errors.New("enough")
		l := &Loop{FD: fd, Poller: newPoller(t), Room: pipeRoom, Target: 1, MaxInterval: interval,
			Drain: func() (int, time.Duration, error) {
				if calls++; calls == 5 {
					return 0, 0, over
				}
				return 0, 2 * time.Millisecond, nil
			}}
		begin := time.Now()
		if err := l.Run(nil); err != over {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 8*time.Millisecond {
			t.Errorf("4 waits of 2 ms took %v", d)
		}
	}
}

// TestLoopUnfinished: a drain that stopped early is called again at once, and
// stop is looked at in between.
func TestLoopUnfinished(t *testing.T) {
	for _, interval := range []time.Duration{0, 20 * time.Millisecond} {
		stop, calls := make(chan struct{}), 0
		l := &Loop{FD: -1, Room: pipeRoom, Target: 1, MaxInterval: interval,
			Drain: func() (int, time.Duration, error) {
				if calls++; calls == 100 {
					close(stop)
				}
				return 1, -1, nil
			}}
		if err := l.Run(stop); err != nil || calls != 100 {
			t.Errorf("Run = %v after %d calls", err, calls)
		}
	}
}

// TestLoopStops: a loop does not sleep on after stop. One that does never ends
// before its sleep is over; one that does not may be late now and then, on a
// busy machine, but not each time.
func TestLoopStops(t *testing.T) {
	for range 20 {
		var drains, last atomic.Int64
		began := time.Now()
		stop := start(&Loop{FD: -1, Room: pipeRoom, Target: 512, MaxInterval: time.Hour,
			Drain: func() (int, time.Duration, error) {
				last.Store(int64(time.Since(began)))
				drains.Add(1)
				return 1, 0, nil
			}})
		const long = 7 // drains until it sleeps for this many doublings of the shortest time
		eventually(t, "it sleeps for long", func() bool { return drains.Load() >= long })
		if err := stop(); err != nil {
			t.Errorf("Run after stop: %v", err)
		}
		if time.Since(began)-time.Duration(last.Load()) < MinSleep<<(long-3) {
			return
		}
	}
	t.Error("it slept on after stop")
}
