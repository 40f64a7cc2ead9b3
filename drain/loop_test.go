package drain

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
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
	alone  int // no lock guards it: the race detector sees two drains at once
}

func (r *reader) drain() (units int, again time.Duration, err error) {
	r.alone++
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
		if d := time.Since(begin); d < 4*2*time.Millisecond {
			t.Errorf("4 waits of 2 ms took %v", d)
		}
	}
}

// TestLoopUnfinished: a drain that stopped early is called again at once, and
// stop is looked at in between.
func TestLoopUnfinished(t *testing.T) {
	for _, interval := range []time.Duration{0, 20 * time.Millisecond} {
		fd, _ := newPipe(t)
		stop, calls := make(chan struct{}), 0
		l := &Loop{FD: fd, Room: pipeRoom, Target: 1, MaxInterval: interval,
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

// TestLoopTriesAgain: what a drain had to leave in the queue, and asks to try
// again later, does not make the loop spin.
func TestLoopTriesAgain(t *testing.T) {
	fd, w := newPipe(t)
	write(t, w, "x")
	calls, over := 0, errors.New("enough")
	l := &Loop{FD: fd, Drain: func() (int, time.Duration, error) {
		if calls++; calls == 9 {
			return 0, 0, over
		}
		return 0, 5 * time.Millisecond, nil
	}}
	begin := time.Now()
	if err := l.Run(nil); err != over {
		t.Fatal(err)
	}
	// Two threads wait at the same time: one found the "x" in the epoll.
	if d := time.Since(begin); d < 15*time.Millisecond {
		t.Errorf("8 waits of 5 ms took %v", d)
	}
}

// TestLoopErrorEndsAll: the threads that are asleep when another one fails do
// not sleep on.
func TestLoopErrorEndsAll(t *testing.T) {
	fd, w := newPipe(t)
	r, failed := &reader{fd: fd}, errors.New("failed")
	done := make(chan error, 1)
	l := &Loop{FD: fd, Drain: func() (int, time.Duration, error) {
		if n, again, err := r.drain(); n == 0 {
			return n, again, err
		}
		return 0, 0, failed
	}}
	go func() { done <- l.Run(nil) }()
	eventually(t, "all are asleep", asleep(wakingThreads))
	write(t, w, "x")
	select {
	case err := <-done:
		if err != failed {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a thread sleeps on")
	}
}

// TestLoopArrivalDuringDrain: what arrives when a drain has found the queue
// empty, but has not returned, is taken although nothing follows it.
func TestLoopArrivalDuringDrain(t *testing.T) {
	fd, w := newPipe(t)
	r := &reader{fd: fd}
	taken, handled := make(chan struct{}), make(chan struct{})
	stop := start(&Loop{FD: fd, Drain: func() (int, time.Duration, error) {
		n, again, err := r.drain()
		if r.bytes.Load() == 1 && n == 1 {
			close(taken)
			<-handled
		}
		return n, again, err
	}})
	write(t, w, "x")
	<-taken
	write(t, w, "y")
	close(handled)
	eventually(t, "the second is taken", func() bool { return r.bytes.Load() == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// asleep says whether n goroutines are in epoll_wait(2).
func asleep(n int) func() bool {
	return func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return bytes.Count(stacks, []byte("unix.EpollWait(")) == n
	}
}

// TestLoopManyArrivals: with a writer that never lets it rest, one thread at a
// time drains, and nothing stays in the queue.
func TestLoopManyArrivals(t *testing.T) {
	fd, w := newPipe(t)
	r := &reader{fd: fd}
	stop := start(&Loop{FD: fd, Drain: r.drain})
	const n = 20_000
	for range n {
		write(t, w, "x")
	}
	eventually(t, "all is taken", func() bool { return r.bytes.Load() == n })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestLoopStopsDuringDrain: stop ends the threads that sleep while a drain
// blocks, and Run when that is over.
func TestLoopStopsDuringDrain(t *testing.T) {
	fd, w := newPipe(t)
	r := &reader{fd: fd}
	taken, handled := make(chan struct{}), make(chan struct{})
	done, quit := make(chan error, 1), make(chan struct{})
	l := &Loop{FD: fd, Drain: func() (int, time.Duration, error) {
		n, again, err := r.drain()
		if n > 0 {
			close(taken)
			<-handled
		}
		return n, again, err
	}}
	go func() { done <- l.Run(quit) }()
	eventually(t, "all are asleep", asleep(wakingThreads))
	write(t, w, "x")
	<-taken
	close(quit)
	eventually(t, "none is asleep", asleep(0))
	select {
	case err := <-done:
		t.Fatalf("Run returned %v during a drain", err)
	default:
	}
	close(handled)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestProcessors: the threads of loops that sleep do not take the processors of
// others, however the number of those changes meanwhile.
func TestProcessors(t *testing.T) {
	first := runtime.GOMAXPROCS(0)
	defer SetProcessors(first)
	want := func(n int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != n {
			t.Errorf("%d processors, want %d", got, n)
		}
	}
	var stops []func() error
	for n := range maxReserved + 1 {
		fd, _ := newPipe(t)
		stops = append(stops, start(&Loop{FD: fd, Drain: (&reader{fd: fd}).drain}))
		eventually(t, "all are asleep", asleep(wakingThreads*(n+1)))
		want(first + wakingThreads*min(n+1, maxReserved))
	}
	SetProcessors(first + 5)
	want(first + 5 + wakingThreads*maxReserved)
	for n, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
		want(first + 5 + wakingThreads*(maxReserved-n))
	}
}

// TestConfined: the halves share no CPU, and leave none out; other threads, the
// main one among them, stay free.
func TestConfined(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	var halves [2]unix.CPUSet
	var group sync.WaitGroup
	for half := range halves {
		group.Go(func() {
			confined(half, func() {
				if err := unix.SchedGetaffinity(0, &halves[half]); err != nil {
					t.Error(err)
				}
			})
		})
	}
	group.Wait()
	if all.Count() == 1 {
		if halves[0] != all || halves[1] != all {
			t.Error("confined on a machine with one CPU")
		}
		t.Skip("this machine lets us have one CPU: it has no halves")
	}
	var both unix.CPUSet
	for cpu := range len(all) * 64 {
		switch {
		case halves[0].IsSet(cpu) && halves[1].IsSet(cpu):
			t.Errorf("CPU %d is in both halves", cpu)
		case halves[0].IsSet(cpu) || halves[1].IsSet(cpu):
			both.Set(cpu)
		}
	}
	if both != all {
		t.Errorf("the halves are CPUs %x, all are %x", both, all)
	}
	// Sooner or later it is the main thread's turn, which does not end.
	for range 200 {
		group.Go(func() { confined(0, func() {}) })
		group.Wait()
	}
	eventually(t, "no thread is confined", func() bool {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			id, _ := strconv.Atoi(task.Name())
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(id, &set); err == nil && set != all {
				return false
			}
		}
		return true
	})
}
