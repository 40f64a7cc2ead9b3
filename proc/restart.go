package proc

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Restart says after which exits a program starts again.
type Restart int

// Supervisord's autorestart: false, unexpected, true.
const (
	Never      Restart = iota
	Unexpected         // after an exit code that is not in ExitCodes, or a signal
	Always
)

// Backoff is the delay between restarts: Min, doubled by each failure in a row
// up to Max. A run of at least Reset is healthy and begins anew.
type Backoff struct {
	Min, Max, Reset time.Duration
}

// State is where a program stands, in supervisord's words.
type State int

// The states (supervisord manual, "Process States").
const (
	Stopped  State = iota // not started yet, or stopped by an order
	Starting              // started less than StartWait ago
	Running
	Backingoff // waits for its next start
	Stopping
	Exited // ended, and its Restart says that this was it
	Fatal  // failed StartRetries times in a row, or could never be started
)

var stateNames = [...]string{"STOPPED", "STARTING", "RUNNING", "BACKOFF", "STOPPING", "EXITED", "FATAL"}

func (s State) String() string { return stateNames[s] }

// ending is how one run of a program ended.
type ending struct {
	up   bool          // it had lived for StartWait
	code int           // exit code; -1: a signal, or it could not be started
	ran  time.Duration // how long
}

// restarts decides what follows an ending. It belongs to one goroutine.
type restarts struct {
	rule    Restart
	codes   []int
	retries int // quick failures in a row that are tried again; -1: all
	backoff Backoff

	quick   int // endings in a row before StartWait
	crashes int // endings in a row that were failures, without a healthy run
}

// expected says that e is no failure.
func (r *restarts) expected(e ending) bool {
	return e.up && slices.Contains(r.codes, e.code)
}

// after returns the state that follows e and, if it is Backingoff, the delay.
//
// The first failure after a healthy time is followed by a start at once, as
// supervisord does; only what goes on failing is slowed down. An expected exit
// is no failure, unless it comes so soon that the program would spin.
func (r *restarts) after(e ending) (State, time.Duration) {
	if e.ran >= r.backoff.Reset || (r.expected(e) && e.ran >= r.backoff.Min) {
		r.crashes = 0
	}
	if !e.up {
		r.quick++
		if r.retries >= 0 && r.quick > r.retries {
			return Fatal, 0
		}
		r.crashes++
		return Backingoff, r.delay(r.crashes)
	}
	r.quick = 0
	if r.rule == Never || (r.rule == Unexpected && r.expected(e)) {
		return Exited, 0
	}
	r.crashes++
	if r.crashes == 1 && e.ran >= r.backoff.Min {
		return Backingoff, 0
	}
	return Backingoff, r.delay(r.crashes - 1)
}

// delay is the wait before the next start, after n failures in a row. From the
// second on half of it is random, so that programs which fell together do not
// rise together.
func (r *restarts) delay(n int) time.Duration {
	d := r.backoff.Min
	for ; n > 1 && d < r.backoff.Max; n-- {
		d *= 2
	}
	d = min(d, r.backoff.Max)
	low := max(d/2, r.backoff.Min)
	if low >= d {
		return d
	}
	return low + rand.N(d-low+1)
}

// forget begins anew, after an order of the operator.
func (r *restarts) forget() { r.quick, r.crashes = 0, 0 }
