package load

import (
	"fmt"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Written is what a line writer saw.
type Written struct {
	Lines   int
	Took    time.Duration
	P50     time.Duration // of the duration of write(2)
	P999    time.Duration
	Longest time.Duration
}

// Write writes numbered lines of size bytes, line feed included, to a
// descriptor, one write(2) each, for a time: at a rate (lines a second), or as
// fast as they are taken if rate is 0.
//
// It is for a process that does nothing else: it turns the garbage collector
// off and makes raw system calls, so that what it measures is the kernel, not
// Go's scheduler.
func Write(fd, size, rate int, length time.Duration) (Written, error) {
	debug.SetGCPercent(-1)
	set := NewLines(size - 1)
	line := make([]byte, 0, size)
	var took Histogram
	var w Written
	start := time.Now()
	for before := start; before.Sub(start) < length; w.Lines++ {
		line = append(set.Append(line[:0], w.Lines), '\n')
		before = await(start, w.Lines, rate)
		if err := writeAll(fd, line); err != nil {
			return w, fmt.Errorf("write line %d: %w", w.Lines, err)
		}
		took.Add(time.Since(before))
	}
	w.Took = time.Since(start)
	w.P50, w.P999, w.Longest = took.Quantile(0.5), took.Quantile(0.999), took.Longest()
	return w, nil
}

// await returns when line n is due, with the time that it is then.
func await(start time.Time, n, rate int) time.Time {
	now := time.Now()
	if rate == 0 {
		return now
	}
	due := start.Add(time.Duration(float64(n) / float64(rate) * 1e9))
	for now.Before(due) {
		pause := unix.NsecToTimespec(int64(200 * time.Microsecond))
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
		now = time.Now()
	}
	return now
}

// writeAll writes all of p, going on after a short write.
func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		switch errno {
		case 0:
			p = p[n:]
		case unix.EINTR:
		default:
			return errno
		}
	}
	return nil
}
