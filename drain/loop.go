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
	Poller *Poller // not needed if MaxInterval is 0

	// Room says what the kernel's queue holds when it is full, in the units
	// that Drain returns. It is called after every drain, so it must be cheap.
	Room   func() int
	Target int // units wanted per wake-up

	// MaxInterval is the longest sleep between two drains. Zero is for queues
	// too short to let anything gather: then the loop sleeps in poll(2), on a
	// thread of its own, and every arrival wakes it.
	MaxInterval time.Duration

	// Burst, in units a second, is what may arrive all of a sudden: no sleep
	// is longer than the queue holds at that rate (but MinSleep). 0: any.
	Burst int

	// Drain empties the descriptor until EAGAIN and returns how many units it
	// took. again > 0: call again after at most this, even if nothing arrives.
	// again < 0: it stopped before EAGAIN (it must not go on for ever while a
	// writer is faster than it): call again at once. An error, io.EOF too,
	// ends Run and is what Run returns.
	Drain func() (units int, again time.Duration, err error)
}

// Run drains until stop is closed (nil) or Drain fails (its error). It returns
// promptly after stop, without a last drain: that is the caller's.
func (l *Loop) Run(stop <-chan struct{}) error {
	if l.MaxInterval <= 0 {
		return l.runWaking(stop)
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
			if _, err := l.Poller.Wait(l.FD, again, stop); err != nil {
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

// runWaking is Run where every arrival shall wake the loop. A poll of two
// descriptors is the cheapest way to sleep for one of them: entering an epoll
// and leaving it would be two more system calls a datagram.
func (l *Loop) runWaking(stop <-chan struct{}) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { // ends with stop or with this call
		select {
		case <-stop:
			signal(wake) // cannot fail: the eventfd is ours and its count is 0
		case <-ended:
		}
	})
	defer func() {
		close(ended)
		watcher.Wait()
		unix.Close(wake)
	}()

	fds := []unix.PollFd{{Fd: int32(l.FD), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	for !closed(stop) {
		_, again, err := l.Drain()
		if err != nil {
			return err
		}
		if again < 0 {
			runtime.Gosched()
			continue
		}
		// A signal (the scheduler's among them) only makes it drain early.
		if _, err := unix.Poll(fds, milliseconds(again)); err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
	return nil
}

// milliseconds is a poll(2) timeout that is never short of d; -1 for none.
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
