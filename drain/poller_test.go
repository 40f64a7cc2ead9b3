package drain

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPollerWait(t *testing.T) {
	p := newPoller(t)
	stopped := make(chan struct{})
	close(stopped)
	tests := []struct {
		name  string
		setup func(w int)
		d     time.Duration
		stop  <-chan struct{}
		ready bool
	}{
		{"readable before", func(w int) { write(t, w, "x") }, 0, nil, true},
		{"hung up", func(w int) { unix.Close(w) }, 0, nil, true},
		{"time is up", func(int) {}, time.Millisecond, nil, false},
		{"stopped", func(int) {}, 0, stopped, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var fds [2]int
			if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
				t.Fatal(err)
			}
			test.setup(fds[1])
			ready, err := p.Wait(fds[0], test.d, test.stop)
			if ready != test.ready || err != nil {
				t.Errorf("Wait = %v, %v, want %v", ready, err, test.ready)
			}
			if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fds[0], nil); err != unix.ENOENT {
				t.Errorf("the descriptor is still in the epoll: %v", err)
			}
			unix.Close(fds[0])
			unix.Close(fds[1])
		})
	}
}

func TestPollerWakesOnlyTheReady(t *testing.T) {
	p := newPoller(t)
	const n = 20
	var write1 [n]int
	var got [n]chan bool
	stop := make(chan struct{})
	for i := range n {
		r, w := newPipe(t)
		write1[i], got[i] = w, make(chan bool, 1)
		go func() {
			ready, err := p.Wait(r, 0, stop)
			if err != nil {
				t.Error(err)
			}
			got[i] <- ready
		}()
	}
	eventually(t, "all wait", parked(p, n))
	for i := 0; i < n; i += 2 {
		write(t, write1[i], "x")
		if !<-got[i] {
			t.Errorf("%d is not ready", i)
		}
	}
	eventually(t, "half of them wait", parked(p, n/2))
	close(stop)
	for i := 1; i < n; i += 2 {
		if <-got[i] {
			t.Errorf("%d is ready, nothing was written", i)
		}
	}
}

func TestPollerRegularFileIsReady(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ready, err := newPoller(t).Wait(int(f.Fd()), 0, nil); !ready || err != nil {
		t.Errorf("Wait = %v, %v", ready, err)
	}
}

func TestPollerErrors(t *testing.T) {
	p := newPoller(t)
	if _, err := p.Wait(-1, 0, nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("a closed descriptor: %v", err)
	}
	r, _ := newPipe(t)
	stop := make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() { p.Wait(r, 0, stop) })
	eventually(t, "the first waits", parked(p, 1))
	eventually(t, "the second is refused", func() bool {
		_, err := p.Wait(r, time.Millisecond, nil)
		return errors.Is(err, unix.EEXIST)
	})
	close(stop)
	first.Wait()
}

func TestPollerCloseEndsWaits(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	r, _ := newPipe(t)
	ended := make(chan error)
	go func() {
		_, err := p.Wait(r, 0, nil)
		ended <- err
	}()
	eventually(t, "it waits", parked(p, 1))
	closing := make(chan error)
	go func() { closing <- p.Close() }()
	if err := <-ended; err != ErrClosed {
		t.Errorf("Wait: %v", err)
	}
	if err := <-closing; err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := p.Wait(r, 0, nil); err != ErrClosed {
		t.Errorf("Wait after Close: %v", err)
	}
}

// TestPollerStaleEvents lets stops and arrivals race: a wait must never be
// ended by the event of the one before it.
func TestPollerStaleEvents(t *testing.T) {
	p := newPoller(t)
	busyR, busyW := newPipe(t)
	quietR, _ := newPipe(t)
	for range 2000 {
		stop := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			unix.Write(busyW, []byte("x"))
			close(stop)
		})
		if _, err := p.Wait(busyR, 0, stop); err != nil {
			t.Fatal(err)
		}
		if ready, err := p.Wait(quietR, time.Microsecond, nil); ready || err != nil {
			t.Fatalf("the quiet pipe: ready %v, %v", ready, err)
		}
		writer.Wait()
		var b [8]byte
		unix.Read(busyR, b[:])
	}
}

func TestPollerWaitAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newPoller(t)
	r, w := newPipe(t)
	write(t, w, "x")
	n := testing.AllocsPerRun(200, func() {
		if ready, err := p.Wait(r, time.Second, nil); !ready || err != nil {
			t.Fatal(ready, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a wait", n)
	}
}
