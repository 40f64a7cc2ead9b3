package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sliceOf is the slice of a thread, 0 for the caller's.
func sliceOf(t *testing.T, thread int) time.Duration {
	t.Helper()
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(attr.Runtime)
}

// needSlices skips a test where the kernel knows none of a thread's own.
func needSlices(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skipf("no slices can be had here: sched_getattr: %v", err)
	}
	attr.Runtime = uint64(slice)
	if err := unix.SchedSetAttr(0, attr, 0); err != nil || sliceOf(t, 0) != slice {
		t.Skipf("this kernel knows no slice of a thread's own: it has %v, %v", sliceOf(t, 0), err)
	}
	attr.Runtime = 0
	if err := unix.SchedSetAttr(0, attr, 0); err != nil {
		t.Fatal(err)
	}
}

// All threads of the daemon run soon after they wake up, and its programs are
// as any others.
func TestSlices(t *testing.T) {
	needSlices(t)
	ordinary := sliceOf(t, 0)
	d := startDaemon(t, prelude+`
[program.worker]
command = ["sleep", "300"]
startsecs = 0
sinks = ["out"]
`+plainSink)
	program := 0
	eventually(t, 10*time.Second, "the program is started", func() bool {
		for _, e := range d.entries("started") {
			if e["program"] == "worker" {
				pid, _ := e["pid"].(float64)
				program = int(pid)
			}
		}
		return program > 0
	})
	if got := sliceOf(t, program); got != ordinary {
		t.Errorf("the program has a slice of %v, want %v", got, ordinary)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", d.pid()))
	if err != nil || len(threads) < 3 {
		t.Fatal(threads, err)
	}
	others := 0
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			t.Fatal(err)
		}
		if got := sliceOf(t, id); got != slice {
			others++
		}
	}
	if others != 1 {
		t.Errorf("%d of %d threads have another slice than %v, want the one that forks", others, len(threads), slice)
	}
	d.stop()
}
