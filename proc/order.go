package proc

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Status is a snapshot of a program.
type Status struct {
	State    State
	PID      int    // 0: none
	Restarts int    // starts but the first
	Exit     string // how the last run ended, such as "exit status 1"; "" before
}

// Errors of orders.
var (
	ErrNotRunning = errors.New("not running") // also of a signal that nobody can receive
	ErrRunning    = errors.New("already running")
	errEnded      = errors.New("the daemon stops, or a reload has replaced it")
	errStopped    = errors.New("was stopped meanwhile")
)

// Order is what an operator wants of a program. It stands whether anybody
// waits for what comes of it or not.
type Order struct {
	program *Program
	run     bool
	after   int   // a start counts if it is later than so many, an end if it is that of the last of them
	err     error // there was nothing to do
}

// Start makes the program run, if it does not: at once, where it waits for its
// next attempt. A stop that was ordered before is carried out first.
func (p *Program) Start() *Order {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &Order{program: p, run: true, after: p.starts}
	if p.want && !p.again {
		switch p.status.State {
		case Running:
			o.err = ErrRunning
		case Starting:
			o.after-- // this start is meant
		}
	}
	stops := !p.want && !p.status.State.atRest()
	p.orderLocked(true, p.again || stops || p.status.State == Backingoff)
	return o
}

// Stop ends the program until Start.
func (p *Program) Stop() *Order {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &Order{program: p, after: p.starts}
	if !p.want && p.status.State.atRest() {
		o.err = ErrNotRunning
	}
	p.orderLocked(false, false)
	return o
}

// Restart ends the program, if it runs, and starts it at once.
func (p *Program) Restart() *Order {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orderLocked(true, true)
	return &Order{program: p, run: true, after: p.starts}
}

func (p *Program) orderLocked(want, again bool) {
	p.want, p.again = want, again
	select {
	case p.kick <- struct{}{}:
	default: // one is waiting already
	}
	p.changeLocked() // for those whose order this one undoes
}

// Wait waits until the order has been carried out: a program to stop has
// stopped, one to start has lived for StartWait, or is ready. Its first failure to do so is
// the error, whether it is tried again or not. [ErrRunning] and
// [ErrNotRunning] say that there was nothing to do.
func (o *Order) Wait(ctx context.Context) error {
	if o.err != nil {
		return o.err
	}
	for {
		done, changed, err := o.check()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-o.program.ended:
			if done, _, err := o.check(); done || err != nil {
				return err
			}
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// check looks what has come of the order by now. If nothing has yet, changed
// is closed when it is worth to look again.
func (o *Order) check() (done bool, changed <-chan struct{}, err error) {
	p := o.program
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.changed
	state := p.status.State
	switch {
	case !o.run: // it may have been started again meanwhile
		return state.atRest() || p.want && p.down >= o.after, changed, nil
	case p.up > o.after:
		return true, nil, nil
	case state == Stopped && !p.want:
		return false, nil, errStopped
	case p.down > o.after && p.down != p.halted: // else another order has it start once more
		return false, nil, fmt.Errorf("%v: %s", state, p.status.Exit)
	case state.atRest() && !p.want: // before Run saw that it was to start
		return false, nil, errStopped
	}
	return false, changed, nil
}

// atRest reports whether a program in this state stays there by itself.
func (s State) atRest() bool { return s == Stopped || s == Exited || s == Fatal }

// wanted is what the last order was.
func (p *Program) wanted() (want, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want, p.again
}

// begin reports whether the program shall run. If so, that is what the next
// start carries out, and from now on it is starting.
func (p *Program) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.want {
		if p.status.State == Backingoff { // stopped just as its delay was over
			p.status.State = Stopped
			p.changeLocked()
		}
		return false
	}
	p.again = false
	p.status.State = Starting
	p.status.Restarts = p.starts
	p.starts++
	p.changeLocked()
	return true
}

// Signal sends sig to the child, or to its group if StopAsGroup is set.
func (p *Program) Signal(sig unix.Signal) error {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil || closed(c.exited) || c.signal(sig, p.cfg.StopAsGroup) != nil {
		return ErrNotRunning
	}
	return nil
}

// Status is safe to call at any time, from any goroutine.
func (p *Program) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Begun waits until the program has made its first attempt to start, if it is
// to start by itself and does not wait for what it depends on.
func (p *Program) Begun(ctx context.Context) {
	p.mu.Lock()
	done := func() bool { return p.child != nil || p.status.Exit != "" || !p.want || p.waiting }
	for !done() {
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.ended:
			return
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
}

func (p *Program) setState(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.State = s
	if s == Running {
		p.up = p.starts
	}
	p.changeLocked()
}

// enter notes a start.
func (p *Program) enter(c *child) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = c
	p.status.PID = c.pid
	p.changeLocked()
}

// leave notes an end. A program that will not start again is not wanted any
// more, unless an order came in just now.
func (p *Program) leave(exit string, next State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = nil
	p.down = p.starts
	p.status.State, p.status.PID, p.status.Exit = next, 0, exit
	if next == Stopped {
		p.halted = p.starts
	}
	if (next == Exited || next == Fatal) && len(p.kick) == 0 {
		p.want = false
	}
	p.changeLocked()
}

// changeLocked wakes those who wait for a change.
func (p *Program) changeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}
