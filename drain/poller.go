package drain

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrClosed is what [Poller.Wait] returns once the poller is closed.
var ErrClosed = errors.New("drain: poller is closed")

// Poller parks goroutines until a descriptor is readable. It is one epoll
// instance with one goroutine, whatever the number of descriptors, and another
// goroutine for pipes: an idle descriptor costs no thread, and no system call
// while all others are idle.
//
// Go's own network poller cannot do this. It is edge-triggered and holds a
// descriptor for as long as it is open, so that every arrival wakes it while
// the reader is asleep on purpose (epoll(7), "Level-triggered and
// edge-triggered").
type Poller struct {
	epoll int
	wake  int            // eventfd, written once, by Close
	sigio chan os.Signal // holds one
	shut  chan struct{}  // closed by Close: waits end
	users sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	closed  bool
	next    uint64               // the last token given out; 0 is the eventfd's
	waiters map[uint64]*waiter   // by the token of their wait
	pipes   map[*waiter]struct{} // those that wait for a pipe
	spare   scratch              // for the next of these; zero if there is none
	free    []*waiter
}

// waiter is what one parked goroutine sleeps on. It is reused, so that a park
// allocates nothing.
type waiter struct {
	token uint64
	ready chan struct{} // holds one: the sender never blocks
	timer *time.Timer
}

// NewPoller makes a poller; its goroutines run until Close.
func NewPoller() (*Poller, error) {
	epoll, wake, err := newEpoll()
	if err != nil {
		return nil, err
	}
	p := &Poller{
		epoll:   epoll,
		wake:    wake,
		sigio:   make(chan os.Signal, 1),
		shut:    make(chan struct{}),
		waiters: make(map[uint64]*waiter),
		pipes:   make(map[*waiter]struct{}),
	}
	signal.Notify(p.sigio, unix.SIGIO)
	p.users.Go(p.run)
	p.users.Go(p.listen)
	return p, nil
}

// newEpoll makes an epoll instance with an eventfd in it that wakes whoever
// waits. The token of the eventfd is 0.
func newEpoll() (epoll, wake int, err error) {
	epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, -1, os.NewSyscallError("epoll_create1", err)
	}
	wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return -1, -1, os.NewSyscallError("eventfd", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return -1, -1, os.NewSyscallError("epoll_ctl", err)
	}
	return epoll, wake, nil
}

// Wait parks the caller until fd is readable or hung up (true), or until stop
// is closed or d has passed (false); d <= 0 is no limit, a nil stop never ends
// the wait. When it returns, fd is out of the epoll again, so the caller may
// close it. Two goroutines cannot wait for one descriptor: the second gets
// EEXIST. A regular file cannot be polled and is always readable.
func (p *Poller) Wait(fd int, d time.Duration, stop <-chan struct{}) (ready bool, err error) {
	w := p.enter()
	if w == nil {
		return false, ErrClosed
	}
	defer p.leave(w)

	ev := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT,
		Fd:     int32(uint32(w.token)),
		Pad:    int32(uint32(w.token >> 32)),
	}
	switch err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err {
	case nil:
	case unix.EPERM:
		return true, nil
	default:
		return false, os.NewSyscallError("epoll_ctl", err)
	}
	ready, err = p.park(w, d, stop)
	// One-shot has disarmed it if it fired, but an entry that stays would
	// outlive our close of fd where another process shares the description.
	if cerr := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil); err == nil {
		err = os.NewSyscallError("epoll_ctl", cerr)
	}
	return ready, err
}

// park sleeps on the waiter's channels alone.
func (p *Poller) park(w *waiter, d time.Duration, stop <-chan struct{}) (bool, error) {
	var timeout <-chan time.Time
	if d > 0 {
		w.timer.Reset(d)
		timeout = w.timer.C
		defer w.timer.Stop()
	}
	select {
	case <-w.ready:
		return true, nil
	case <-stop:
		return false, nil
	case <-timeout:
		return false, nil
	case <-p.shut:
		return false, ErrClosed
	}
}

// enter registers a waiter under a new token; nil after Close. A token is used
// once, so an event that was under way when its wait ended finds nobody.
func (p *Poller) enter() *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.users.Add(1) // under the lock that Close takes before it waits
	var w *waiter
	if n := len(p.free); n > 0 {
		w, p.free = p.free[n-1], p.free[:n-1]
	} else {
		w = &waiter{ready: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		w.timer.Stop()
	}
	p.next++
	w.token = p.next
	p.waiters[w.token] = w
	return w
}

// leave takes the waiter back.
func (p *Poller) leave(w *waiter) {
	p.mu.Lock()
	delete(p.waiters, w.token)
	select { // the event may have come in together with the stop
	case <-w.ready:
	default:
	}
	p.free = append(p.free, w)
	p.mu.Unlock()
	p.users.Done()
}

// run hands events to their waiters until Close writes to the eventfd.
func (p *Poller) run() {
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(p.epoll, events[:], -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil { // EBADF, EFAULT, EINVAL: somebody closed our descriptor
			panic("drain: epoll_wait: " + err.Error())
		}
		if !p.hand(events[:n]) {
			return
		}
	}
}

// hand wakes the waiters of the events; false when the eventfd is among them.
func (p *Poller) hand(events []unix.EpollEvent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		token := uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32
		if token == 0 {
			return false
		}
		if w := p.waiters[token]; w != nil {
			w.ready <- struct{}{} // one event a token: there is room
		}
	}
	return true
}

// Close ends all waits with [ErrClosed], and the poller's goroutines, and
// returns when they have ended. A second Close does nothing.
func (p *Poller) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()

	close(p.shut)
	err := raise(p.wake)
	p.users.Wait()
	signal.Stop(p.sigio)
	if p.spare != (scratch{}) {
		err = errors.Join(err, p.spare.close())
	}
	return errors.Join(err, unix.Close(p.epoll), unix.Close(p.wake))
}

// raise makes an eventfd readable.
func raise(eventfd int) error {
	one := [8]byte{1} // any 64-bit number but zero, in either byte order (eventfd(2))
	_, err := unix.Write(eventfd, one[:])
	return os.NewSyscallError("write", err)
}
