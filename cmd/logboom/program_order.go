package main

import (
	"cmp"
	"maps"
	"slices"
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

// rank is where a program stands in the order of starts: by priority, but
// never before what it depends on.
type rank struct{ priority, depth int }

func compareRanks(a, b rank) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.depth, b.depth))
}

// inOrder lists the feeds of programs in the order of their starts; those of
// one list start together.
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
