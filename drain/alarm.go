package drain

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm is how a loop sleeps between two drains: a timerfd(2) in Go's network
// poller, which wakes the one thread that goes on with the loop.
//
// A timer of the runtime wakes two more for each sleep: the thread that waits
// in the poller, to tell it of a timer sooner than those it knew, and the
// runtime's monitor, which sleeps until the next timer too. That was half of
// what a drain of few messages cost. For the same reason the alarm is set by a
// raw system call: others wake the monitor.
type alarm struct {
	file  *os.File
	conn  syscall.RawConn
	next  unix.ItimerSpec
	set   bool
	rings func(fd uintptr) bool // the method ring, bound once

	closed  chan struct{}
	watcher sync.WaitGroup
}

// newAlarm makes an alarm. When stop is closed the sleep ends at once, and so
// do all later ones.
func newAlarm(stop <-chan struct{}) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{file: os.NewFile(uintptr(fd), "timerfd"), closed: make(chan struct{})}
	a.conn, err = a.file.SyscallConn()
	if err == nil {
		err = a.file.SetReadDeadline(time.Time{}) // fails if the poller did not take it
	}
	if err != nil {
		return nil, errors.Join(err, a.file.Close())
	}
	a.rings = a.ring
	a.watcher.Go(func() { // ends with stop or with close
		select {
		case <-stop:
			a.file.SetReadDeadline(time.Unix(1, 0)) // long ago; cannot fail before close
		case <-a.closed:
		}
	})
	return a, nil
}

// sleep returns after d, which is over 0, or when stop is closed.
func (a *alarm) sleep(d time.Duration) {
	a.next.Value = unix.NsecToTimespec(int64(d))
	a.set = false
	a.conn.Read(a.rings) // its error is stop's deadline
}

// ring is called before the wait and after it. It sets the alarm only when the
// poller listens: a ring before that would be missed. Nobody reads how often it
// rang: setting it clears that, and the poller is edge-triggered.
func (a *alarm) ring(fd uintptr) bool {
	if a.set {
		return true
	}
	a.set = true
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&a.next)), 0, 0, 0)
	return errno != 0 // EBADF, EINVAL: never, but better no sleep than one without end
}

func (a *alarm) close() error {
	close(a.closed)
	a.watcher.Wait()
	return a.file.Close()
}
