package drain

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waits are the ways to wait, all of them for pipes here.
var waits = []struct {
	name string
	wait func(p *Poller, fd int, d time.Duration, stop <-chan struct{}) (bool, error)
}{
	{"epoll", (*Poller).Wait},
	{"SIGIO", (*Poller).WaitPipe},
}

// wantUnarmed checks that nothing of a wait is left.
func wantUnarmed(t *testing.T, p *Poller, fd int) {
	t.Helper()
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil); err != unix.ENOENT {
		t.Errorf("the descriptor is still in the epoll: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&^unix.O_ACCMODE != unix.O_NONBLOCK {
		t.Errorf("the flags of the descriptor are %#x: %v", flags, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pipes) > 0 || len(p.waiters) > 0 {
		t.Errorf("%d wait for pipes, %d in all", len(p.pipes), len(p.waiters))
	}
}

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
	for _, way := range waits {
		for _, test := range tests {
			t.Run(way.name+", "+test.name, func(t *testing.T) {
				var fds [2]int
				if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
					t.Fatal(err)
				}
				test.setup(fds[1])
				ready, err := way.wait(p, fds[0], test.d, test.stop)
				if ready != test.ready || err != nil {
					t.Errorf("Wait = %v, %v, want %v", ready, err, test.ready)
				}
				wantUnarmed(t, p, fds[0])
				unix.Close(fds[0])
				unix.Close(fds[1])
			})
		}
	}
}

// What wakes a waiter that is asleep: a write, and the last writer's end.
func TestPollerWakes(t *testing.T) {
	for _, way := range waits {
		for _, event := range []struct {
			name string
			set  func(w int)
			text string
		}{
			{"a write", func(w int) { write(t, w, "text") }, "text"},
			{"the end", func(w int) { unix.Close(w) }, ""},
		} {
			t.Run(way.name+", "+event.name, func(t *testing.T) {
				p := newPoller(t)
				var fds [2]int
				if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fds[0])
				got := make(chan bool)
				go func() {
					ready, err := way.wait(p, fds[0], 0, nil)
					if err != nil {
						t.Error(err)
					}
					got <- ready
				}()
				eventually(t, "it waits", parked(p, 1))
				if way.name == "SIGIO" {
					eventually(t, "it is armed", func() bool {
						flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0)
						return err == nil && flags&unix.O_ASYNC != 0
					})
				}
				event.set(fds[1])
				if !<-got {
					t.Error("it is not ready")
				}
				wantUnarmed(t, p, fds[0])
				var b [16]byte
				if n, err := unix.Read(fds[0], b[:]); string(b[:n]) != event.text || err != nil {
					t.Errorf("it holds %q, want %q: %v", b[:n], event.text, err)
				}
			})
		}
	}
}

func TestPollerWakesOnlyTheReady(t *testing.T) {
	for _, way := range waits {
		t.Run(way.name, func(t *testing.T) {
			p := newPoller(t)
			const n = 20
			var write1 [n]int
			var got [n]chan bool
			stop := make(chan struct{})
			for i := range n {
				r, w := newPipe(t)
				write1[i], got[i] = w, make(chan bool, 1)
				go func() {
					ready, err := way.wait(p, r, 0, stop)
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
		})
	}
}

// Pipes beyond so many are polled, and wake too. What they are looked at with
// is given back, but for the next one's.
func TestPollerOfManyPipes(t *testing.T) {
	p := newPoller(t)
	const n = 2 * maxPipes
	var read1, write1 [n]int
	for i := range n {
		read1[i], write1[i] = newPipe(t)
	}
	newTestAlarm(t, nil).sleep(1) // Go's own poller is open from here on
	before := descriptors(t)
	got := make(chan int)
	for i, r := range read1 {
		go func() {
			if ready, err := p.WaitPipe(r, 0, nil); !ready || err != nil {
				t.Errorf("pipe %d: ready %v, %v", i, ready, err)
			}
			got <- i
		}()
	}
	eventually(t, "all wait", parked(p, n))
	p.mu.Lock()
	rung := len(p.pipes)
	p.mu.Unlock()
	if rung > maxPipes {
		t.Errorf("%d pipes are looked at after each signal, want %d at most", rung, maxPipes)
	}
	for i, w := range write1 {
		write(t, w, "x")
		if woken := <-got; woken != i {
			t.Errorf("%d is woken by a write into %d", woken, i)
		}
	}
	if after := descriptors(t); after > before+2 {
		t.Errorf("%d descriptors, want %d and one pipe", after, before)
	}
}

// What cannot be looked at by tee(2) is polled.
func TestPollerWithoutTee(t *testing.T) {
	p := newPoller(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if ready, err := p.WaitPipe(pair[0], time.Millisecond, nil); ready || err != nil {
		t.Errorf("nothing was written: ready %v, %v", ready, err)
	}
	write(t, pair[1], "x")
	if ready, err := p.WaitPipe(pair[0], 0, nil); !ready || err != nil {
		t.Errorf("ready %v, %v", ready, err)
	}
	wantUnarmed(t, p, pair[0])
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
	for _, way := range waits {
		t.Run(way.name, func(t *testing.T) {
			p, err := NewPoller()
			if err != nil {
				t.Fatal(err)
			}
			r, _ := newPipe(t)
			ended := make(chan error)
			go func() {
				_, err := way.wait(p, r, 0, nil)
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
			if _, err := way.wait(p, r, 0, nil); err != ErrClosed {
				t.Errorf("Wait after Close: %v", err)
			}
		})
	}
}

// TestPollerStaleEvents lets stops and arrivals race: a wait must never be
// ended by the event of the one before it.
func TestPollerStaleEvents(t *testing.T) {
	for _, way := range waits {
		t.Run(way.name, func(t *testing.T) {
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
				if _, err := way.wait(p, busyR, 0, stop); err != nil {
					t.Fatal(err)
				}
				if ready, err := way.wait(p, quietR, time.Microsecond, nil); ready || err != nil {
					t.Fatalf("the quiet pipe: ready %v, %v", ready, err)
				}
				writer.Wait()
				var b [8]byte
				unix.Read(busyR, b[:])
			}
		})
	}
}

// TestPollerMissesNothing has a writer write at any moment of a wait.
func TestPollerMissesNothing(t *testing.T) {
	for _, way := range waits {
		t.Run(way.name, func(t *testing.T) {
			p := newPoller(t)
			r, w := newPipe(t)
			seen := make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() {
				for range 1000 {
					unix.Write(w, []byte("x"))
					<-seen
				}
			})
			for i := range 1000 {
				ready, err := way.wait(p, r, 10*time.Second, nil)
				if !ready || err != nil {
					t.Errorf("write %d: ready %v, %v", i, ready, err)
				}
				var b [8]byte
				if n, err := unix.Read(r, b[:]); n != 1 || err != nil {
					t.Errorf("write %d: %d bytes, %v", i, n, err)
				}
				seen <- struct{}{}
			}
			writer.Wait()
		})
	}
}

func TestPollerWaitAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, way := range waits {
		p := newPoller(t)
		r, w := newPipe(t)
		write(t, w, "x")
		n := testing.AllocsPerRun(200, func() {
			if ready, err := way.wait(p, r, time.Second, nil); !ready || err != nil {
				t.Fatal(ready, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a wait", way.name, n)
		}
	}
}
