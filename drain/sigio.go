package drain

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WaitPipe is [Poller.Wait] for the read end of a pipe whose description (the
// struct file, open(2)) nobody shares.
//
// A pipe that was polled once, in whatever way, pays for it for ever: from then
// on each write(2) looks for sleepers, a fifth of what it takes to write a short
// line (Linux, fs/pipe.c, poll_usage). So pipes are not polled. One that waits
// sends SIGIO instead, at the next write and at its end (fcntl(2), O_ASYNC).
func (p *Poller) WaitPipe(fd int, d time.Duration, stop <-chan struct{}) (ready bool, err error) {
	w := p.enter()
	if w == nil {
		return false, ErrClosed
	}
	defer p.leave(w)

	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid()); err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	p.expect(w, fd)
	defer p.forget(w)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_ASYNC); err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	p.ringFor(w) // what came before it was armed sent no signal
	ready, err = p.park(w, d, stop)
	if _, ferr := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags); err == nil {
		err = os.NewSyscallError("fcntl", ferr)
	}
	return ready, err
}

// expect notes that a waiter waits for a pipe.
func (p *Poller) expect(w *waiter, fd int) {
	p.mu.Lock()
	p.pipes[w] = fd
	p.mu.Unlock()
}

// forget notes that it does not any more, if it did.
func (p *Poller) forget(w *waiter) {
	p.mu.Lock()
	delete(p.pipes, w)
	p.mu.Unlock()
}

// ringPause is how long the next SIGIO may have to wait after one: to look at a
// hundred pipes takes some 40 us.
const ringPause = 2 * time.Millisecond

// listen wakes waiters of pipes after a SIGIO, until Close. The signal does not
// say which pipe it is about, and stands for all that came before it.
func (p *Poller) listen() {
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		select {
		case <-p.sigio:
		case <-p.shut:
			return
		}
		p.ring()
		pause.Reset(ringPause)
		select {
		case <-pause.C:
		case <-p.shut:
			return
		}
	}
}

// ring wakes all whose pipe can be read.
func (p *Poller) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w, fd := range p.pipes {
		p.ringLocked(w, fd)
	}
}

// ringFor wakes a waiter if its pipe can be read.
func (p *Poller) ringFor(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fd, waits := p.pipes[w]; waits {
		p.ringLocked(w, fd)
	}
}

// ringLocked wakes a waiter that was not woken, if its pipe can be read.
func (p *Poller) ringLocked(w *waiter, fd int) {
	if p.readableLocked(fd) {
		delete(p.pipes, w)
		w.ready <- struct{}{} // once a wait: there is room
	}
}

// readableLocked reports whether a pipe holds anything or has come to its end,
// without polling it: tee(2) takes nothing out of it. If it fails, a read will
// say why.
func (p *Poller) readableLocked(fd int) bool {
	n, err := unix.Tee(fd, p.scratch[1], 1, unix.SPLICE_F_NONBLOCK)
	if n > 0 {
		var b [1]byte
		unix.Read(p.scratch[0], b[:]) // the byte is there
	}
	return err != unix.EAGAIN
}
