package drain

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxPipes bounds how many pipes wait for SIGIO; each of them is looked at
// after each signal. Others are polled.
const maxPipes = 32

// ringPause is how long the next SIGIO may have to wait after one, which bounds
// what it costs to look at all pipes each time.
const ringPause = 2 * time.Millisecond

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
	ready, err = p.waitPipe(w, fd, d, stop)
	p.leave(w)
	if err == errPoll {
		return p.Wait(fd, d, stop)
	}
	return ready, err
}

// errPoll says that a pipe has to be polled after all.
var errPoll = errors.New("drain: cannot wait for SIGIO")

// waitPipe is WaitPipe with a waiter.
func (p *Poller) waitPipe(w *waiter, fd int, d time.Duration, stop <-chan struct{}) (ready bool, err error) {
	s, err := p.expect(w)
	if err != nil {
		return false, err
	}
	defer p.forget(w, s)
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, os.Getpid()); err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_ASYNC); err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	ready, err = p.parkPipe(w, s, fd, d, stop)
	if _, ferr := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags); err == nil {
		err = os.NewSyscallError("fcntl", ferr)
	}
	return ready, err
}

// parkPipe sleeps until a pipe can be read, and looks at it before each sleep:
// what came before it was armed sent no signal. Each waiter looks for itself,
// since that takes the pipe's lock, which a writer may keep for long, while its
// text is fetched from a swap or a network.
func (p *Poller) parkPipe(w *waiter, s scratch, fd int, d time.Duration, stop <-chan struct{}) (ready bool, err error) {
	until := time.Now().Add(d)
	for {
		if ready, err := s.look(fd); ready || err != nil {
			return ready, err
		}
		if d > 0 {
			d = max(time.Until(until), time.Nanosecond)
		}
		if rung, err := p.park(w, d, stop); !rung {
			return false, err
		}
	}
}

// scratch is a pipe to copy a byte into. Each waiter has its own while it
// waits: tee(2) takes the locks of both pipes.
type scratch struct{ read, write int }

// newScratch makes one; errPoll where the system has no more pipes.
func newScratch() (scratch, error) {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return scratch{}, errPoll
	}
	return scratch{fds[0], fds[1]}, nil
}

func (s scratch) close() error {
	return errors.Join(unix.Close(s.read), unix.Close(s.write))
}

// look reports whether a pipe holds anything or has come to its end, without
// polling it: tee(2) takes nothing out of it. It returns errPoll where that
// cannot be done, as in some sandboxes.
func (s scratch) look(fd int) (ready bool, err error) {
	for {
		n, err := unix.Tee(fd, s.write, 1, unix.SPLICE_F_NONBLOCK)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return false, nil
		case err != nil:
			return false, errPoll
		case n > 0:
			var b [1]byte
			unix.Read(s.read, b[:]) // the byte is there
			return true, nil
		default:
			return true, nil
		}
	}
}

// expect has a waiter be rung and gives it a scratch; errPoll if too many are
// rung, or there is no descriptor left for one.
func (p *Poller) expect(w *waiter) (s scratch, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pipes) >= maxPipes {
		return s, errPoll
	}
	if p.spare != (scratch{}) {
		s, p.spare = p.spare, s
	} else if s, err = newScratch(); err != nil {
		return s, err
	}
	p.pipes[w] = struct{}{}
	return s, nil
}

// forget ends that. One scratch is kept, so that a single pipe, whose writer
// pauses time and again, makes none; more would stay open for a crowd that is
// long gone.
func (p *Poller) forget(w *waiter, s scratch) {
	p.mu.Lock()
	delete(p.pipes, w)
	if p.spare == (scratch{}) {
		s, p.spare = p.spare, s
	}
	p.mu.Unlock()
	if s != (scratch{}) {
		s.close()
	}
}

// listen rings at each SIGIO until Close. The signal does not say which pipe it
// is about, and stands for all that came before it.
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

// ring has all who wait for a pipe look at it.
func (p *Poller) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.pipes {
		select {
		case w.ready <- struct{}{}:
		default: // it is about to look
		}
	}
}
