package drain

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

var processors sync.Mutex // held while their number changes

// reserve gives the runtime n more processors (GOMAXPROCS), or takes them back.
// A thread that sleeps in a system call of its own keeps its processor for up to
// 10 ms; others shall not have to wait for that.
func reserve(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// confine keeps the calling goroutine on every other of the CPUs that the process
// may use, from the first (half 0) or the second (half 1). Its thread is its own
// from now on, and ends with it. Where there is but one CPU, or the system does
// not want to, it stays free.
func confine(half int) {
	runtime.LockOSThread()
	var allowed, ours unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return
	}
	for cpu, n := 0, allowed.Count(); n > 0; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if n--; n%2 == half {
			ours.Set(cpu)
		}
	}
	if ours.Count() > 0 {
		_ = unix.SchedSetaffinity(0, &ours)
	}
}
