// Package drain empties datagram sockets, FIFOs and pipes without a wake-up
// for each arrival. A reader that sleeps in a system call is woken by every
// line, and the writer pays for most of that inside its write(2); a reader
// that sleeps on a timer, for as long as the kernel's queue has room, costs
// neither of them anything.
package drain

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Loop drains one non-blocking descriptor, which must not be in Go's network
// poller: use raw system calls on it, not an [os.File] or a net.Conn.
//
// While data flows the loop sleeps between drains as [Pace] says. After three
// drains that found nothing it parks in the Poller: then it makes no system
// call and has no running timer.
type Loop struct {
	FD     int
	Pipe   bool    // FD is fit for [Poller.WaitPipe]
	Poller *Poller // not needed if MaxInterval is 0

	// Room says what the kernel's queue holds when it is full, in the units
	// that Drain returns. It is called after every drain, so it must be cheap.
	Room   func() int
	Target int // units wanted per wake-up

	// MaxInterval is the longest sleep between two drains. Zero is for queues
	// too short to let anything gather: then every arrival wakes the loop.
	MaxInterval time.Duration

	// Burst, in units a second, is what may arrive all of a sudden: no sleep
	// is longer than the queue holds at that rate (but MinSleep). 0: any.
	Burst int

	// Drain empties the descriptor until EAGAIN and returns how many units it
	// took. again > 0: call again after at most this, even if nothing arrives.
	// again < 0: it stopped before EAGAIN (it must not go on for ever while a
	// writer is faster than it): call again at once. An error, io.EOF too,
	// ends Run and is what Run returns. It is called once at a time, but not
	// always by the same goroutine.
	Drain func() (units int, again time.Duration, err error)
}

// Run drains until stop is closed (nil) or Drain fails (its error). It returns
// promptly after stop, without a last drain: that is the caller's.
func (l *Loop) Run(stop <-chan struct{}) error {
	if l.MaxInterval <= 0 {
		return l.runWaking(stop)
	}
	wait := l.Poller.Wait
	if l.Pipe {
		wait = l.Poller.WaitPipe
	}
	pace := Pace{Target: l.Target, MaxInterval: l.MaxInterval, Burst: l.Burst}
	alarm, err := newAlarm(stop)
	if err != nil {
		return err
	}
	defer alarm.close()

	for last := time.Now(); !closed(stop); {
		units, again, err := l.Drain()
		if err != nil {
			return err
		}
		now := time.Now()
		sleep, park := pace.Next(units, now.Sub(last), l.Room())
		last = now
		switch {
		case again < 0 || (sleep == 0 && !park):
			runtime.Gosched()
		case park:
			if _, err := wait(l.FD, again, stop); err != nil {
				return err
			}
		default:
			if again > 0 {
				sleep = min(sleep, again)
			}
			alarm.sleep(sleep)
		}
	}
	return nil
}

// runWaking is Run where every arrival shall wake the loop.
func (l *Loop) runWaking(stop <-chan struct{}) error {
	epoll, wake, err := newEpoll()
	if err != nil {
		return err
	}
	defer func() { unix.Close(epoll); unix.Close(wake) }()
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, l.FD, &ev); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}

	w := &waking{loop: l, stop: stop, epoll: epoll, wake: wake}
	ended := make(chan struct{})
	var watcher, sleepers sync.WaitGroup
	watcher.Go(func() { // ends with stop or with this call
		select {
		case <-stop:
			raise(wake) // cannot fail: the eventfd is ours and its count is small
		case <-ended:
		}
	})
	changeProcessors(0, 1)
	defer changeProcessors(0, -1)
	sleepers.Go(func() { w.run(-1) })
	for half := range wakingThreads - 1 {
		sleepers.Go(func() { confined(half, func() { w.run(0) }) })
	}
	sleepers.Wait()
	close(ended)
	watcher.Wait()
	return w.err
}

// wakingThreads is how many threads a [waking] loop has.
const wakingThreads = 3

// waking is a loop of threads that sleep in one epoll, of which an arrival
// wakes one, in turn.
//
// The kernel likes to put a thread on the CPU of the writer that wakes it. There
// the thread runs at once; but when it has had its share of that CPU, it waits
// until the writer sleeps, and by then a short queue is full. So one of the
// threads may use only one half of the CPUs, and another only the other half:
// one of them is never on the writer's. It takes longer to come, but need not
// share. The third is where the kernel likes it.
//
// The epoll is edge-triggered: what a drain could not take must not keep the
// threads from sleeping.
type waking struct {
	loop        *Loop
	stop        <-chan struct{}
	epoll, wake int // not ours

	// pending counts who came to drain. The first does it, and again for those
	// that came meanwhile, who need not wait for it.
	pending atomic.Int64
	failed  atomic.Bool
	err     error // written before failed is set, by the one that drains
}

// run waits and drains in turn, until stop or the first error of any thread. The
// first wait is again, as [Loop.Drain] tells the others.
func (w *waking) run(again time.Duration) {
	defer raise(w.wake) // the eventfd is level-triggered: the others wake too
	var events [1]unix.EpollEvent
	var yielded time.Time
	for !w.over() {
		if again >= 0 {
			// A signal (the scheduler's among them) only makes it drain early.
			if _, err := unix.EpollWait(w.epoll, events[:], milliseconds(again)); err != nil && err != unix.EINTR {
				panic("drain: epoll_wait: " + err.Error()) // somebody closed our descriptor
			}
		}
		again = w.drain()
		// A goroutine that goes from one system call to the next without this
		// never ends its time slice. Go's monitor then takes its processor away
		// in every call, and for that looks after it every 20 µs, for ever. But
		// to yield wakes another thread, and costs more than a drain.
		if now := time.Now(); now.Sub(yielded) > yieldInterval {
			yielded = now
			runtime.Gosched()
		}
	}
}

// yieldInterval is half of a time slice of Go's scheduler.
const yieldInterval = 5 * time.Millisecond

func (w *waking) over() bool { return w.failed.Load() || closed(w.stop) }

// drain empties the descriptor, or leaves that to the thread that is at it.
func (w *waking) drain() (again time.Duration) {
	if w.pending.Add(1) > 1 {
		return 0
	}
	for !w.over() {
		came := w.pending.Load() // who comes after this may have seen more than the drain will
		_, again, err := w.loop.Drain()
		if err != nil {
			w.err = err
			w.failed.Store(true)
			break
		}
		if again < 0 {
			w.pending.Store(0)
			return again
		}
		if w.pending.CompareAndSwap(came, 0) {
			return again
		}
	}
	return 0 // pending stays: nobody drains any more
}

// milliseconds is an epoll_wait(2) timeout that is never short of d; -1 for none.
func milliseconds(d time.Duration) int {
	if d <= 0 {
		return -1
	}
	return int((d + time.Millisecond - 1) / time.Millisecond)
}

func closed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
