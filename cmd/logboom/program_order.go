package main

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"logboom/proc"
)

// gateRetry is when a program whose process has ended is looked up again: a
// reload is about to put another in its place.
const gateRetry = 10 * time.Millisecond

// openGate lets a program start once all that it depends on is up. What that
// is, a reload may change meanwhile.
func (d *daemon) openGate(f *feed, gate chan struct{}, stop <-chan struct{}) {
	for {
		c := d.missing(f)
		if c == nil {
			close(gate)
			return
		}
		if c.Up(stop) {
			continue
		}
		select {
		case <-stop:
			return
		case <-time.After(gateRetry):
		}
	}
}

// missing is a process that a program depends on and that is not up, or nil.
func (d *daemon) missing(f *feed) *child {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := make(chan struct{})
	close(now)
	for _, name := range f.section.(Program).DependsOn {
		if other := d.feeds[name]; other != nil {
			for _, c := range other.children {
				if !c.Up(now) {
					return c
				}
			}
		}
	}
	return nil
}

// turnover is what a reload does to programs: as for supervisorctl's update,
// those that are gone or changed stop, and those that are changed or new start.
type turnover struct {
	d *daemon

	before  [][]*feed                // all programs, in the order of their starts
	stopped map[*feed]chan struct{}  // of those that stop: closed when one has
	follows map[*feed]map[*feed]bool // of those that start: whose stop they wait for
	removed map[*feed]bool           // that have no successor
}

func (d *daemon) newTurnover() *turnover {
	return &turnover{
		d: d, before: inOrder(slices.Collect(maps.Values(d.feeds))),
		stopped: make(map[*feed]chan struct{}), follows: make(map[*feed]map[*feed]bool), removed: make(map[*feed]bool),
	}
}

func (t *turnover) add(f *feed) { t.follows[f] = t.removed }

func (t *turnover) replace(old, f *feed) {
	t.stopped[old] = make(chan struct{})
	t.follows[f] = map[*feed]bool{old: true}
}

func (t *turnover) remove(old *feed) {
	t.stopped[old] = make(chan struct{})
	t.removed[old] = true
}

// run stops programs in the reverse order of starts, and starts others: each
// once its predecessor has stopped, a new one once those that are gone have,
// since it may be one of them by another name, and not before those of a lower
// rank have made their first attempts. If there is nothing to stop, these have
// been made when it returns; otherwise it goes on in settled.
func (t *turnover) run(now map[string]*feed, settled *sync.WaitGroup) {
	after := inOrder(slices.Collect(maps.Values(now)))
	if len(t.stopped) == 0 {
		t.start(after)
		return
	}
	settled.Go(func() { t.start(after) })
	settled.Go(func() {
		for _, equals := range slices.Backward(t.before) {
			each(equals, func(f *feed) {
				if stopped := t.stopped[f]; stopped != nil {
					f.end()
					close(stopped)
				}
			})
		}
	})
}

func (t *turnover) start(order [][]*feed) {
	for _, equals := range order {
		each(equals, func(f *feed) {
			if t.follows[f] == nil {
				return // it runs
			}
			for old := range t.follows[f] {
				<-t.stopped[old]
			}
			if !t.d.ready.Load() { // the daemon has been told to stop meanwhile
				for _, c := range f.children {
					c.Stop()
				}
			}
			f.start(t.d.ended)
			f.begun()
		})
	}
}

// each does something to all of a list at once.
func each(feeds []*feed, do func(*feed)) {
	var all sync.WaitGroup
	for _, f := range feeds {
		all.Go(func() { do(f) })
	}
	all.Wait()
}

// rank is where a program stands in the order of starts: by priority, but
// never before what it depends on.
type rank struct{ priority, depth int }

func compareRanks(a, b rank) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.depth, b.depth))
}

// inOrder lists the feeds of programs in the order of their starts; those of
// one list start together. It reads their sections: mu is held, or it is the
// goroutine of reloads that asks.
func inOrder(feeds []*feed) [][]*feed {
	programs := make(map[string]Program)
	for _, f := range feeds {
		if s, ok := f.section.(Program); ok {
			programs[s.Name] = s
		}
	}
	ranks := make(map[string]rank)
	by := make(map[rank][]*feed)
	for _, f := range feeds {
		if s, ok := f.section.(Program); ok {
			r := rankOf(s, programs, ranks)
			by[r] = append(by[r], f)
		}
	}
	var list [][]*feed
	for _, r := range slices.SortedFunc(maps.Keys(by), compareRanks) {
		list = append(list, by[r])
	}
	return list
}

// rankOf finds the rank of a program, and of all that it depends on. There is
// no circle, or the config would have been refused.
func rankOf(s Program, programs map[string]Program, ranks map[string]rank) rank {
	if r, ok := ranks[s.Name]; ok {
		return r
	}
	r := rank{priority: s.Priority}
	for _, name := range s.DependsOn {
		if other, ok := programs[name]; ok {
			after := rankOf(other, programs, ranks)
			after.depth++
			if compareRanks(after, r) > 0 {
				r = after
			}
		}
	}
	ranks[s.Name] = r
	return r
}

// forProcess is the section's ready as package proc wants it; nil: none.
func (r *Ready) forProcess(tcp string) *proc.Ready {
	if r.Timeout == 0 {
		return nil
	}
	return &proc.Ready{Line: r.Line, TCP: tcp, Notify: r.Notify, Timeout: r.Timeout}
}
