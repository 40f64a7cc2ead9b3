package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"logboom/proc"
)

// outcome is what has come of an order for one process, program or sink: a
// line of the answer.
type outcome struct {
	Name   string `json:"name"`
	Text   string `json:"text"`
	Failed bool   `json:"failed"`
}

// answer writes outcomes to the asker as they come in.
type answer struct {
	mu      sync.Mutex // guards encoder
	encoder *json.Encoder
	flush   func() error
}

func (a *answer) add(name, text string, err error) {
	o := outcome{Name: name, Text: text}
	if err != nil {
		o.Text, o.Failed = err.Error(), true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Both fail only for an asker that has gone: what it ordered is done.
	a.encoder.Encode(o)
	a.flush()
}

// serveOrders takes the orders of an operator. Each is answered when it has
// been carried out; it stands if the asker goes away meanwhile.
func (d *daemon) serveOrders(mux *http.ServeMux) {
	handle := func(verb string, carryOut func(ctx context.Context, a *answer, names []string)) {
		mux.HandleFunc("POST /"+verb, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/jsonl")
			a := &answer{encoder: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
			carryOut(r.Context(), a, r.URL.Query()["name"])
		})
	}
	handle("start", d.startNamed)
	handle("stop", d.stopNamed)
	handle("restart", d.restartNamed)
	handle("reload", d.reloadNamed)
	handle("reopen", func(ctx context.Context, a *answer, _ []string) { d.settleSinks(ctx, a, "reopened", (*outlet).Reopen) })
	handle("flush", func(ctx context.Context, a *answer, _ []string) { d.settleSinks(ctx, a, "flushed", (*outlet).Flush) })
}

// target is a process that an order is for.
type target struct {
	*child
	feed *feed
}

// find lists the processes that names mean, each once, and answers for those
// that mean none. A name is that of a program (all its processes) or of a
// process; as for supervisorctl, PROGRAM:PROCESS, PROGRAM:* and all work too.
func (d *daemon) find(names []string, a *answer) []target {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []target
	for _, name := range names {
		before := len(found)
		known := name == "all"
		for _, f := range d.feeds {
			for _, c := range f.children {
				if !meant(name, f.name, c.name) {
					continue
				}
				known = true
				if !slices.ContainsFunc(found[:before], func(t target) bool { return t.child == c }) {
					found = append(found, target{c, f})
				}
			}
		}
		if !known {
			a.add(name, "", errors.New("no such program or process"))
		}
	}
	slices.SortFunc(found, func(a, b target) int { return strings.Compare(a.name, b.name) })
	return found
}

func meant(name, program, process string) bool {
	group, one, isPair := strings.Cut(name, ":")
	if isPair {
		return group == program && (one == "*" || one == process)
	}
	return name == "all" || name == program || name == process
}

// levels divides targets by the order of their starts.
func (d *daemon) levels(targets []target) [][]target {
	d.mu.Lock() // a reload changes sections
	defer d.mu.Unlock()
	var feeds []*feed
	for _, t := range targets {
		if !slices.Contains(feeds, t.feed) {
			feeds = append(feeds, t.feed)
		}
	}
	var list [][]target
	for _, equals := range inOrder(feeds) {
		var level []target
		for _, t := range targets {
			if slices.Contains(equals, t.feed) {
				level = append(level, t)
			}
		}
		list = append(list, level)
	}
	return list
}

// giveAll gives one order to processes, all at once, and answers for each.
// What is so already is no failure: a script may say start twice.
func giveAll(ctx context.Context, a *answer, level []target, order func(target) *proc.Order, done string) {
	var all sync.WaitGroup
	for _, t := range level {
		all.Go(func() {
			switch err := order(t).Wait(ctx); err {
			case proc.ErrRunning, proc.ErrNotRunning:
				a.add(t.name, err.Error(), nil)
			default:
				a.add(t.name, done, err)
			}
		})
	}
	all.Wait()
}

func (d *daemon) startNamed(ctx context.Context, a *answer, names []string) {
	for _, level := range d.levels(d.find(names, a)) {
		giveAll(ctx, a, level, func(t target) *proc.Order { return t.Start() }, "started")
	}
}

func (d *daemon) stopNamed(ctx context.Context, a *answer, names []string) {
	for _, level := range slices.Backward(d.levels(d.find(names, a))) {
		giveAll(ctx, a, level, func(t target) *proc.Order { return t.Stop() }, "stopped")
	}
}

func (d *daemon) restartNamed(ctx context.Context, a *answer, names []string) {
	for _, level := range d.levels(d.find(names, a)) {
		giveAll(ctx, a, level, func(t target) *proc.Order { return t.Restart() }, "restarted")
	}
}

// reloadNamed tells programs to reload as their sections say: by a signal to
// each process, or by a command, once for the program. Without names it is the
// daemon's own config that is read anew.
func (d *daemon) reloadNamed(ctx context.Context, a *answer, names []string) {
	if len(names) == 0 {
		a.add("config", "reloaded", d.askReload(ctx))
		return
	}
	var commanded []*feed
	for _, t := range d.find(names, a) {
		s := d.programOf(t.feed)
		switch {
		case s.ReloadSignal != 0:
			a.add(t.name, "sent "+unix.SignalName(unix.Signal(s.ReloadSignal)), t.Signal(unix.Signal(s.ReloadSignal)))
		case len(s.ReloadCommand) == 0:
			a.add(t.name, "", errors.New("its program has neither reload_signal nor reload_command"))
		case !slices.Contains(commanded, t.feed):
			commanded = append(commanded, t.feed)
			text, err := t.reload(ctx)
			a.add(t.feed.name, text, err)
		}
	}
}

// programOf is the section of a feed, which a reload may change.
func (d *daemon) programOf(f *feed) Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, _ := f.section.(Program)
	return s
}

// reload runs the program's reload_command. What it writes is in the answer.
func (c *child) reload(ctx context.Context) (string, error) {
	out, err := c.Command(ctx, c.reloadCommand)
	text := strings.TrimRight(string(out), "\n")
	if err != nil {
		return "", fmt.Errorf("reload_command: %w\n%s", err, text)
	}
	return strings.TrimSuffix("reloaded\n"+text, "\n"), nil
}

// askReload has the config read again by the goroutine that it belongs to.
func (d *daemon) askReload(ctx context.Context) error {
	result := make(chan error, 1)
	select {
	case d.reloads <- result:
		return <-result
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settlePoll is how often an order for sinks looks whether it is done.
const settlePoll = 5 * time.Millisecond

// settleSinks does something to all sinks and waits until what they had taken
// before is delivered. One that cannot deliver is not waited for.
func (d *daemon) settleSinks(ctx context.Context, a *answer, done string, act func(*outlet)) {
	d.mu.Lock()
	var all sync.WaitGroup
	for name, o := range d.outlets {
		taken := o.Status().Accepted
		act(o)
		all.Go(func() { a.add(name, done, o.settle(ctx, taken)) })
	}
	d.mu.Unlock()
	all.Wait()
}

// settle waits until the first messages that the sink accepted, so many, are
// out.
func (o *outlet) settle(ctx context.Context, taken uint64) error {
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		s := o.Status()
		switch {
		case s.Delivered+sum(s.Lost) >= taken:
			return nil
		case s.State == "failing":
			return fmt.Errorf("%d messages wait: %s", s.Buffered, s.LastError)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
