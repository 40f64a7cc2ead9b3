package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"logboom/sink"
	"logboom/syslog"
)

// reload makes the daemon what another config says. Sources and sinks that did
// not change are not touched; what changed is opened before the old is closed,
// so that an error leaves everything as it was. Nothing is lost: a socket that
// goes on listening on its address is taken over with what is queued in it.
func (d *daemon) reload(conf *Config) error {
	d.warnOfFixed(conf)
	confs, full, err := outletConfigs(conf)
	if err != nil {
		return err
	}
	d.fitOpenFiles(conf, confs)
	settle, err := d.renewArena(conf.Memory.Cap)
	if err != nil {
		return err
	}
	fresh, err := d.openChanged(conf)
	settle(err == nil)
	if err != nil {
		return err
	}
	// From here on nothing can fail.
	for _, section := range sections(conf) {
		for _, f := range []*feed{d.feeds[nameOf(section)], fresh[nameOf(section)]} {
			if f != nil {
				f.askPeersFor(section, confs)
			}
		}
	}
	outlets, removed := d.changeOutlets(confs, full)
	settled := d.changeFeeds(conf, fresh, outlets)
	d.mu.Lock()
	d.outlets = outlets
	d.lingering = append(d.lingering, removed...)
	d.mu.Unlock()
	renewed := conf.Memory.Cap != d.conf.Memory.Cap
	d.conf = conf
	tuneRuntime(conf)
	if renewed {
		d.leaveOldArena(settled)
	}
	go d.drain(settled, removed)
	return nil
}

// renewArena makes an arena of another size, if it is to be another one, for
// what comes from now on. What the one before holds is delivered from there.
func (d *daemon) renewArena(size int) (settle func(keep bool), err error) {
	if size == d.conf.Memory.Cap {
		return func(bool) {}, nil
	}
	settle, err = d.arena.Renew(size)
	if err != nil {
		return nil, fmt.Errorf("memory.cap: %w", err)
	}
	d.lockArena()
	return settle, nil
}

// leaveOldArena sends batches on their way now, and has sockets receive
// elsewhere, once their last burst is with the sinks. Pipes and connections do
// so by themselves: idle ones hold no memory.
func (d *daemon) leaveOldArena(settled *sync.WaitGroup) {
	for _, o := range d.current() {
		o.Flush()
	}
	for _, f := range d.feeds {
		s, ok := f.section.(SyslogSource)
		if !ok {
			continue
		}
		for _, socket := range f.sockets {
			var leave func() error
			switch socket := socket.(type) {
			case *syslog.Stream:
				leave = socket.GiveBack
			case *syslog.Datagram:
				w := windowOf(d.receiveWindow(f, s))
				leave = func() error { return socket.Move(w) }
			}
			settled.Go(func() {
				if err := leave(); err != nil {
					f.log.Error().Err(err).Msg("memory.cap")
				}
			})
		}
	}
}

// warnOfFixed names what a running daemon cannot change.
func (d *daemon) warnOfFixed(conf *Config) {
	for _, key := range []struct {
		name     string
		old, new any
	}{
		{"runtime_dir", d.conf.RuntimeDir, conf.RuntimeDir}, {"state_dir", d.conf.StateDir, conf.StateDir},
		{"log", d.conf.Log, conf.Log}, {"http.address", d.conf.HTTP.Address, conf.HTTP.Address},
	} {
		if !reflect.DeepEqual(key.old, key.new) {
			d.log.Warn().Str("key", key.name).Interface("running", key.old).Interface("configured", key.new).
				Msg("takes effect at the next start")
		}
	}
}

// openChanged opens the sections that are new or changed. On an error it
// closes them again.
func (d *daemon) openChanged(conf *Config) (map[string]*feed, error) {
	fresh := make(map[string]*feed)
	for _, section := range sections(conf) {
		name := nameOf(section)
		old := d.feeds[name]
		if old != nil && sameOpening(old.section, section) {
			continue
		}
		f, err := d.openFeed(section, d.adoptFrom)
		if err == nil {
			fresh[name] = f
			continue
		}
		for _, f := range fresh {
			for _, c := range f.closers {
				err = errors.Join(err, c.Close())
			}
		}
		return nil, err
	}
	return fresh, nil
}

// adoptFrom finds the socket that a running source has on an address.
func (d *daemon) adoptFrom(a Address) int {
	for _, f := range d.feeds {
		if s, ok := f.section.(SyslogSource); ok && s.Listen == a && len(f.sockets) == 1 {
			return f.sockets[0].FD()
		}
	}
	return -1
}

// changeOutlets makes, changes and finds the sinks of the new config, and
// returns them and those that are no longer in it.
func (d *daemon) changeOutlets(confs []sink.Config, full map[string]*WhenFull) (outlets map[string]*outlet, removed []*outlet) {
	outlets = make(map[string]*outlet)
	for _, c := range confs {
		old := d.outlets[c.Name]
		switch {
		case old == nil || kind(old.conf) != kind(c):
			outlets[c.Name] = d.openOutlet(c, full[c.Name])
		case !sameSink(old.conf, c):
			old.Set(c)
			fallthrough
		default:
			old.conf, old.full = c, full[c.Name]
			outlets[c.Name] = old
		}
	}
	for name, old := range d.outlets {
		if outlets[name] != old {
			removed = append(removed, old)
		}
	}
	d.shareOut(outlets)
	return outlets, removed
}

// sameSink compares what sinks are but for their share of memory, which may
// change with the number of sinks.
func sameSink(a, b sink.Config) bool {
	a.Memory = b.Memory
	return reflect.DeepEqual(a, b)
}

// changeFeeds puts the new feeds in the place of the old and leads all to
// their sinks. An old feed takes what its queue or pipe still holds before its
// successor starts.
func (d *daemon) changeFeeds(conf *Config, fresh map[string]*feed, outlets map[string]*outlet) (settled *sync.WaitGroup) {
	feeds := make(map[string]*feed)
	var retired []*feed
	var ends []func()
	programs := d.newTurnover()
	settled = new(sync.WaitGroup)
	for _, section := range sections(conf) {
		name := nameOf(section)
		f, old := fresh[name], d.feeds[name]
		switch {
		case f == nil:
			f = old
			d.mu.Lock()
			f.section = section
			d.mu.Unlock()
		case old != nil:
			f.succeed(old)
			if old.retire() {
				retired = append(retired, old)
				defer f.start(d.ended)
				break
			}
			if old.children != nil && f.children != nil {
				programs.replace(old, f)
				break
			}
			ends = append(ends, func() {
				old.end()
				f.start(d.ended)
			})
		case f.children != nil:
			f.setEdges(d.edgesOf(section, outlets)) // its first line may come at once
			programs.add(f)
		default:
			defer f.start(d.ended)
		}
		feeds[name] = f
	}
	for name, old := range d.feeds {
		switch {
		case feeds[name] != nil:
		case old.children != nil:
			programs.remove(old)
		default:
			ends = append(ends, old.end)
		}
	}
	d.mu.Lock()
	d.feeds = feeds
	d.retired = append(slices.DeleteFunc(d.retired, (*feed).hasEnded), retired...)
	d.mu.Unlock()
	// Not before the new feeds are known: the end of the last of the old ones
	// would be taken for the end of all there is to do.
	for _, end := range ends {
		settled.Go(end)
	}
	for _, section := range sections(conf) {
		// An edge that waits for room holds its input until there is some.
		settled.Go(func() { feeds[nameOf(section)].setEdges(d.edgesOf(section, outlets)) })
	}
	programs.run(feeds, settled)
	return settled
}

// succeed makes f go on with the numbers, and the socket files, of old.
func (f *feed) succeed(old *feed) {
	in := old.input
	adopted := len(old.sockets) == 1 && len(f.sockets) == 1
	if adopted {
		adopted = takeOver(f.sockets[0], old.sockets[0])
	}
	in.counts.Lock()
	defer in.counts.Unlock()
	if in.kernel != nil && !adopted {
		in.past += in.kernel()
		in.seen = 0
	}
	in.kernel, in.onDrop, in.refused = f.input.kernel, f.input.onDrop, f.input.refused
	f.input = in
}

// takeOver hands a unix socket's file and the count of kernel drops to a
// listener that adopted the socket.
func takeOver(to, from socket) bool {
	switch from := from.(type) {
	case *syslog.Datagram:
		to, ok := to.(*syslog.Datagram)
		return ok && to.TakeOver(from)
	case *syslog.Stream:
		if to, ok := to.(*syslog.Stream); ok && to.Addr() == from.Addr() {
			to.TakeOver(from)
		}
	}
	return false
}

// retire ends the accepting of connections by a feed that has a successor.
// Those that are open are not cut: they bring messages to the same input until
// their peers close them, or the daemon stops. It returns false, and does
// nothing, for a feed without connections, which is simply to end.
func (f *feed) retire() bool {
	if len(f.sockets) == 0 {
		return false
	}
	stream, ok := f.sockets[0].(*syslog.Stream)
	if ok {
		stream.Retire()
	}
	return ok
}

// drain waits for sinks that were removed.
func (d *daemon) drain(settled *sync.WaitGroup, removed []*outlet) {
	settled.Wait()
	for _, o := range removed {
		o.Close()
		<-o.done
		if n := o.Status().Buffered; n > 0 {
			d.log.Error().Str("sink", o.Name()).Uint64("messages", n).Msg("a sink that was removed is not empty")
			continue
		}
		o.Release()
		d.mu.Lock()
		d.lingering = slices.DeleteFunc(d.lingering, func(other *outlet) bool { return other == o })
		d.mu.Unlock()
	}
}
