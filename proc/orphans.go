package proc

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// orphanRetry is when orphans are looked for again, while one of our own
// children that has ended stands before them.
const orphanRetry = 10 * time.Millisecond

// adoptsOrphans reports whether processes whose parents end become our
// children: we are process 1 or a subreaper (PR_SET_CHILD_SUBREAPER, prctl(2)).
func adoptsOrphans() bool {
	var subreaper int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&subreaper)), 0, 0, 0)
	return os.Getpid() == 1 || err == nil && subreaper != 0
}

// reapOrphans reaps the children that are not our own. It looks before it
// takes: the status of a child of ours is for the one who waits for it. It
// returns when to look again, nil if nothing is left to reap.
func (f *Family) reapOrphans() <-chan time.Time {
	for {
		pid := endedChild()
		switch {
		case pid == 0:
			return nil
		case f.own[pid]:
			// Only the first child that has ended can be seen. Its waiter is
			// about to take it.
			return time.After(orphanRetry)
		}
		unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails if a waiter for its group was faster
	}
}

// siginfo is the beginning of siginfo_t as waitid(2) fills it.
type siginfo struct {
	signo, errno, code int32
	_                  [^uintptr(0) >> 63 * 4]byte // the union is aligned to a pointer
	pid                int32
	_                  [108]byte // it is 128 bytes in all
}

// endedChild is the pid of a child that waits to be reaped, and goes on
// waiting; 0 if there is none.
func endedChild() int {
	var info siginfo
	err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil { // ECHILD: we have none
		return 0
	}
	return int(info.pid)
}
