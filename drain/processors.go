package drain

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// maxReserved bounds how many loops get processors of their own.
const maxReserved = 16

// processors is who wants how many of the runtime's (GOMAXPROCS).
var processors struct {
	sync.Mutex
	others int // than waking loops; 0: as many as there are at first
	loops  int
}

// SetProcessors gives the runtime so many processors (GOMAXPROCS), and, while
// there are loops that every arrival wakes, one more for each of their threads.
// Such a thread sleeps in a system call of its own, and keeps its processor for
// up to 10 ms: others shall not have to wait for that.
func SetProcessors(n int) { changeProcessors(n, 0) }

// changeProcessors sets what others want, unless it is 0, and counts loops.
func changeProcessors(others, loops int) {
	p := &processors
	p.Lock()
	defer p.Unlock()
	if p.others == 0 {
		p.others = runtime.GOMAXPROCS(0)
	}
	if others > 0 {
		p.others = others
	}
	p.loops += loops
	n := p.others + wakingThreads*min(p.loops, maxReserved)
	if n != runtime.GOMAXPROCS(0) { // setting it stops the world
		runtime.GOMAXPROCS(n)
	}
}

// confined runs f in a thread of its own that may use only every other of the
// process's CPUs, from the first (half 0) or the second (half 1). Where there is
// but one CPU, or the system does not want to, it may use all.
func confined(half int, f func()) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread would outlive its goroutine, confined. As long as it is
		// held here, another goroutine gets another thread.
		done := make(chan struct{})
		go func() { defer close(done); confined(half, f) }() // ends with f
		<-done
		runtime.UnlockOSThread()
		return
	}
	// Never unlocked: the thread ends with its goroutine.
	var all, ours unix.CPUSet
	if unix.SchedGetaffinity(0, &all) == nil {
		for cpu, n := 0, 0; n < all.Count(); cpu++ {
			if all.IsSet(cpu) {
				if n%2 == half {
					ours.Set(cpu)
				}
				n++
			}
		}
		if ours.Count() > 0 {
			_ = unix.SchedSetaffinity(0, &ours)
		}
	}
	f()
}
