//go:build race || faults

package buffer

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// onStep is called at each step, if it is set: by tests of this package.
var onStep func(name string)

// LOGBOOM_KILL=NAME:N kills the process when it comes to the step of that name
// for the Nth time; LOGBOOM_PANIC=NAME:N makes it panic.
var kill, crash = faultOf("LOGBOOM_KILL"), faultOf("LOGBOOM_PANIC")

type fault struct {
	name  string
	at    int64
	steps atomic.Int64
}

func faultOf(variable string) *fault {
	name, count, _ := strings.Cut(os.Getenv(variable), ":")
	at, _ := strconv.ParseInt(count, 10, 64)
	return &fault{name: name, at: at}
}

func (f *fault) isDue(name string) bool { return name == f.name && f.steps.Add(1) == f.at }

// Step marks a point between two stores, where tests kill the process.
func Step(name string) {
	if onStep != nil {
		onStep(name)
	}
	if kill.isDue(name) {
		unix.Kill(unix.Getpid(), unix.SIGKILL)
	}
	if crash.isDue(name) {
		panic("LOGBOOM_PANIC")
	}
}
