package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/drain"
	"logboom/proc"
	"logboom/sink"
)

// daemon is everything that `logboom run` runs. Messages go from its feeds to
// its outlets; it is started from the outlets up and stopped from the feeds
// down, so that at each moment whatever has been taken on has a way out.
type daemon struct {
	log       zerolog.Logger
	own       *ownLog
	host      string
	arena     *buffer.Arena
	left      *leftovers    // of processes before this one
	owner     []byte        // what a plain daemon's arena says of it
	sinks     []sink.Config // besides those of the config
	poller    *drain.Poller
	family    *proc.Family // of all programs
	inherited inherited
	baselines *baselines
	plain     bool     // pipe or exec: its own log tells of trouble only
	stdin     *os.File // of programs; nil: /dev/null

	giveUp chan struct{} // closed when what is not delivered yet stays so
	idle   chan struct{} // closed when the last feed has ended by itself

	reloads chan chan error // asks handleSignals to read the config again
	ready   atomic.Bool

	conf *Config // belongs to the goroutine that handles signals

	mu        sync.Mutex // guards what follows: a reload changes it
	feeds     map[string]*feed
	retired   []*feed // that serve their last connections
	outlets   map[string]*outlet
	lingering []*outlet // removed by a reload, and not empty yet
}

// receivePart is the part of memory.cap, 1/receivePart, that is kept for half
// received frames and long lines: a sink that cannot deliver does not take it.
const receivePart = 5

// open opens all that the config names, and runs nothing but sinks, which have
// nothing to do yet. An error leaves nothing behind.
func (d *daemon) open(conf *Config) (err error) {
	confs, full, err := outletConfigs(conf)
	if err != nil {
		return err
	}
	d.fitOpenFiles(conf, confs)
	d.conf, d.host = conf, localHost()
	d.giveUp, d.idle, d.reloads = make(chan struct{}), make(chan struct{}), make(chan chan error)
	d.feeds, d.outlets = make(map[string]*feed), make(map[string]*outlet)
	if err = d.findArenas(); err != nil {
		return err
	}
	d.arena.SetAside(d.arena.Size() / receivePart)
	if d.poller, err = drain.NewPoller(); err != nil {
		return err
	}
	d.family = proc.NewFamily(d.groupsPath(), d.log)
	confs = append(confs, d.sinks...)
	for _, c := range confs {
		d.outlets[c.Name] = d.openOutlet(c, full[c.Name])
	}
	for _, section := range sections(conf) {
		f, err := d.openFeed(section, d.inherited.take)
		if err != nil {
			d.closeUnstarted()
			return err
		}
		f.askPeersFor(section, confs)
		f.setEdges(d.edgesOf(section, d.outlets))
		d.feeds[f.name] = f
	}
	d.inherited.closeRest()
	return d.adopt(d.left)
}

func (d *daemon) closeUnstarted() {
	for _, f := range d.feeds {
		f.closeAll()
	}
	for _, o := range d.outlets {
		o.Close()
		<-o.done
	}
	d.family.Close()
	d.poller.Close()
	d.arena.Remove()
}

// sections are the sources and programs of a config: sources first, since a
// program may write to one.
func sections(c *Config) []any {
	var all []any
	for _, s := range c.Syslog {
		all = append(all, s)
	}
	for _, s := range c.FIFOs {
		all = append(all, s)
	}
	for _, s := range c.Stdin {
		all = append(all, s)
	}
	for _, s := range c.Programs {
		all = append(all, s)
	}
	return all
}

// edgesOf makes the edges of a section.
func (d *daemon) edgesOf(section any, outlets map[string]*outlet) []*edge {
	names, streams, full := route(section)
	var edges []*edge
	for _, name := range names {
		o := outlets[name]
		p := policy(full)
		if o.full != nil {
			p = policy(*o.full)
		}
		e := &edge{Edge: o.Edge(p, d.giveUp)}
		if only := streams[name]; len(only) == 1 {
			e.streams = only
		}
		edges = append(edges, e)
	}
	return edges
}

// start lets messages in.
func (d *daemon) start() {
	var programs []*feed
	d.mu.Lock()
	for _, section := range sections(d.conf) {
		f := d.feeds[nameOf(section)]
		if f.children == nil {
			f.start(d.ended)
		} else {
			programs = append(programs, f)
		}
	}
	d.mu.Unlock()
	d.startPrograms(programs)
}

// ended notes that a feed has ended. When none is left that can bring
// anything, there is nothing more to wait for.
func (d *daemon) ended(*feed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.feeds {
		if !f.hasEnded() {
			return
		}
	}
	select {
	case <-d.idle:
	default:
		close(d.idle)
	}
}

// current are the outlets of this moment, those included that are on their
// way out.
func (d *daemon) current() []*outlet {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(slices.Collect(maps.Values(d.outlets)), d.lingering...)
}

// stop ends programs, then sources, then sinks, and returns how many messages
// are not delivered. What is in the kernel's queues and pipes is taken first.
// After the programs have ended, it all has to be done within stop_timeout.
func (d *daemon) stop() (undelivered uint64) {
	d.ready.Store(false)
	d.endPrograms()
	deadline := time.AfterFunc(d.conf.StopTimeout, func() { close(d.giveUp) })
	defer deadline.Stop()
	d.endFeeds(func(f *feed) bool { return f.children == nil })
	if d.baselines != nil {
		d.baselines.save()
	}
	all := d.current()
	for _, o := range all {
		o.Close()
	}
	for _, o := range all {
		o.wait(d.giveUp)
		undelivered += o.Status().Buffered
	}
	d.keep()
	return undelivered
}

// endFeeds ends some of the feeds, at once, and waits for them.
func (d *daemon) endFeeds(which func(*feed) bool) {
	d.mu.Lock()
	feeds := slices.AppendSeq(slices.Clone(d.retired), maps.Values(d.feeds))
	d.mu.Unlock()
	var all sync.WaitGroup
	for _, f := range feeds {
		if which(f) {
			all.Go(f.end)
		}
	}
	all.Wait()
}

// wait waits for the sink's runner. One that is stuck in a system call, such
// as a write to a terminal that was stopped, is not waited for.
func (o *outlet) wait(giveUp <-chan struct{}) {
	select {
	case <-o.done:
		return
	case <-giveUp:
	}
	select {
	case <-o.done:
	case <-time.After(2 * time.Second):
	}
}

// reopen writes what was taken so far to the files as they are, and then
// looks them up by name again.
func (d *daemon) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.outlets {
		o.Reopen()
	}
}

// logStopped writes the last line of the daemon's own log.
func (d *daemon) logStopped(undelivered uint64) {
	if d.plain {
		return
	}
	s := d.status()
	var sums struct{ received, kernel, delivered, dropped, lost uint64 }
	for _, source := range s.Sources {
		sums.received += source.Received
		sums.kernel += source.KernelDropped
	}
	for _, e := range s.Edges {
		for _, n := range e.Dropped {
			sums.dropped += n
		}
	}
	for _, k := range s.Sinks {
		sums.delivered += k.Delivered
		for _, n := range k.Lost {
			sums.lost += n
		}
	}
	if !s.Balanced {
		d.log.Error().Interface("status", s).Msg("the numbers are not balanced: this is a defect, please report it")
	}
	d.log.Log().Str("level", "info").Uint64("received", sums.received).Uint64("kernel_dropped", sums.kernel).
		Uint64("delivered", sums.delivered).Uint64("dropped", sums.dropped).
		Uint64("lost", sums.lost).Uint64("undelivered", undelivered).Msg("stopped")
}

func nameOf(section any) string {
	switch s := section.(type) {
	case SyslogSource:
		return s.Name
	case FIFOSource:
		return s.Name
	case StdinSource:
		return s.Name
	case Program:
		return s.Name
	}
	panic(fmt.Sprintf("no source: %T", section))
}
