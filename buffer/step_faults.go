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
// for the Nth time.
var (
	killName, killCount, _ = strings.Cut(os.Getenv("LOGBOOM_KILL"), ":")
	killAt, _              = strconv.ParseInt(killCount, 10, 64)
	steps                  atomic.Int64
)

// Step marks a point between two stores, where tests kill the process.
func Step(name string) {
	if onStep != nil {
		onStep(name)
	}
	if name == killName && steps.Add(1) == killAt {
		unix.Kill(unix.Getpid(), unix.SIGKILL)
	}
}
