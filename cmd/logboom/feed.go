package main

import (
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/proc"
	"logboom/sink"
	"logboom/syslog"
)

// feed is an input that is open: its sockets, pipe or process, and the
// goroutines that read them.
type feed struct {
	*input
	section any // as configured: what a reload compares

	runs    []func(stop <-chan struct{}) error // one goroutine each
	sockets []socket                           // of a syslog source
	closers []io.Closer

	children []*child // of a program

	left []func() // what is to be taken up before anything is received
	// takeUpLines takes up text that was read from a pipe; nil: it has none.
	takeUpLines func(*buffer.Window, lineLabel) error

	stop chan struct{}
	done chan struct{} // closed when all runs have returned
}

// socket is a listener of a syslog source.
type socket interface {
	Run(stop <-chan struct{}) error
	FD() int
	Close() error
}

// openFeed binds, opens and validates what a section names; nothing runs yet.
// adopt gives the descriptor of a socket that is bound to an address already,
// or -1.
func (d *daemon) openFeed(section any, adopt func(Address) int) (*feed, error) {
	f := &feed{section: section, stop: make(chan struct{}), done: make(chan struct{})}
	var err error
	switch s := section.(type) {
	case SyslogSource:
		f.input = d.newInput(s.Name)
		err = d.openSyslog(f, s, adopt)
	case FIFOSource:
		f.input = d.newInput(s.Name)
		var pipe *proc.Pipe
		if pipe, err = proc.OpenFIFO(s.Path, s.Mode); err == nil {
			d.readPipe(f, pipe, s.Lines, s.Severity)
		}
	case StdinSource:
		f.input = d.newInput(s.Name)
		var pipe *proc.Pipe
		if pipe, err = proc.OpenStdin(); err == nil {
			d.readPipe(f, pipe, s.Lines, s.Severity)
		}
	case Program:
		f.input = d.newInput(s.Name)
		err = d.openProgram(f, s)
	default:
		panic(fmt.Sprintf("no source: %T", section))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sectionName(section), err)
	}
	return f, nil
}

func (d *daemon) newInput(name string) *input {
	return &input{name: name, log: d.log.With().Str("source", name).Logger()}
}

// sectionName is what a section is called in the config.
func sectionName(section any) string {
	switch s := section.(type) {
	case SyslogSource:
		return "source." + s.Name
	case FIFOSource:
		return "source." + s.Name
	case StdinSource:
		return "source." + s.Name
	case Program:
		return "program." + s.Name
	}
	return ""
}

// start runs the feed; it ends when stop is closed or its input ends.
func (f *feed) start(ended func(*feed)) {
	go func() { // ends after the runs
		for _, takeUp := range f.left {
			takeUp()
		}
		var all sync.WaitGroup
		for _, run := range f.runs {
			all.Go(func() {
				if err := run(f.stop); err != nil {
					f.log.Error().Err(err).Msg("the source has ended")
				}
			})
		}
		all.Wait()
		f.endGaps()
		f.closeAll()
		close(f.done)
		ended(f)
	}()
}

// askPeersFor has the messages know who sent them, if one of their sinks wants
// to know.
func (f *feed) askPeersFor(section any, confs []sink.Config) {
	sinks, _, _ := route(section)
	for i := range confs {
		if confs[i].UsesPeer() && slices.Contains(sinks, confs[i].Name) {
			for _, s := range f.sockets {
				if dg, ok := s.(*syslog.Datagram); ok {
					dg.AskPeers()
				}
			}
			return
		}
	}
}

func (f *feed) closeAll() {
	for _, c := range f.closers {
		if err := c.Close(); err != nil {
			f.log.Error().Err(err).Msg("closing")
		}
	}
}

func (f *feed) hasEnded() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// end stops the feed and waits until all that it took is with its sinks.
func (f *feed) end() {
	close(f.stop)
	<-f.done
}

func (d *daemon) openSyslog(f *feed, s SyslogSource, adopt func(Address) int) error {
	o := &sink.Origin{Source: s.Name, LocalHost: d.host, Zone: s.Timezone}
	switch s.Listen.Network {
	case "udp", "unixgram":
		return d.openDatagram(f, s, adopt, o)
	}
	handler := func(ms []syslog.Message, in syslog.StreamWindow) {
		w, _ := in.(*buffer.Window)
		f.messages(o, ms, w)
	}
	stream, err := syslog.ListenStream(syslog.StreamConfig{
		Network: s.Listen.family(), Address: s.Listen.Address, FD: adopt(s.Listen),
		Raw: s.Format == "raw", Framing: framings[s.Framing],
		MaxMessage: s.MaxMessage, MaxConnections: s.MaxConnections, IdleTimeout: s.IdleTimeout,
		Mode: s.Mode, UID: s.UID, GID: s.GID, Allow: s.Allow,
		Reserve: d.arena.Reserve, Release: d.arena.Unreserve,
		Window: d.streamWindow(s.Name), Handler: handler, Log: f.log,
	})
	if err != nil {
		return err
	}
	f.add(stream)
	f.refused = func() uint64 { return stream.Stats().Refused }
	return nil
}

var framings = map[string]syslog.Framing{"auto": syslog.FramingAuto, "octet": syslog.FramingOctet, "lf": syslog.FramingLF}

func (f *feed) add(s socket) {
	f.sockets = append(f.sockets, s)
	f.runs = append(f.runs, s.Run)
	f.closers = append(f.closers, s)
}

// family is the network to listen on. An IPv4 address is just that: package
// net would take 0.0.0.0 for any address of both families.
func (a Address) family() string {
	host, _, err := net.SplitHostPort(a.Address)
	if ip := net.ParseIP(host); err == nil && !a.isPath() && ip.To4() != nil && !strings.Contains(host, ":") {
		return a.Network + "4"
	}
	return a.Network
}

func (d *daemon) openDatagram(f *feed, s SyslogSource, adopt func(Address) int, o *sink.Origin) error {
	var all []*syslog.Datagram
	for range s.Readers {
		fd := adopt(s.Listen)
		dg, err := syslog.ListenDatagram(syslog.DatagramConfig{
			Network: s.Listen.family(), Address: s.Listen.Address, FD: fd,
			Raw: s.Format == "raw", MaxMessage: s.MaxMessage, ReceiveBuffer: s.ReceiveBuffer,
			DrainInterval: s.DrainInterval, Poller: d.poller,
			Mode: s.Mode, UID: s.UID, GID: s.GID, Allow: s.Allow, ReusePort: s.Readers > 1,
			Window: windowOf(d.receiveWindow(f, s)), Handler: func(ms []syslog.Message, w syslog.Window) {
				window, _ := w.(*buffer.Window)
				f.messages(o, ms, window)
			},
		})
		if err != nil {
			f.closeAll()
			return err
		}
		d.baselines.track(dg, fd >= 0)
		f.add(dg)
		all = append(all, dg)
	}
	f.onDrop = d.baselines.save
	f.refused = func() (sum uint64) {
		for _, dg := range all {
			sum += dg.Stats().Refused
		}
		return sum
	}
	f.kernel = func() (sum uint64) {
		for _, dg := range all {
			sum += dg.Stats().KernelDropped
		}
		return sum
	}
	d.adviseOn(f.log, s, all[0])
	return nil
}

// adviseOn logs what a receive queue is like, and how to enlarge one that is
// small.
func (d *daemon) adviseOn(log zerolog.Logger, s SyslogSource, dg *syslog.Datagram) {
	if s.Listen.Network == "unixgram" {
		length := syslog.DgramQueueLength()
		log.Info().Str("listen", s.Listen.String()).Int("queue", length).Msg("listening")
		if length < 512 {
			log.Warn().Int("net.unix.max_dgram_qlen", length).Msgf(
				"the queue of unix datagram sockets is short: a sender that does not wait, such as nginx, loses what comes while %d messages are queued, and no receiver can count it. "+
					"Raise it with: sysctl -w net.unix.max_dgram_qlen=4096; then restart what made the socket, since its length is fixed when it is made", length)
		}
		return
	}
	// The kernel doubles what it grants, for its own overhead (socket(7)).
	granted := dg.ReceiveBuffer() / 2
	log.Info().Str("listen", s.Listen.Network+"://"+dg.Addr()).Int("receive_buffer", granted).Msg("listening")
	if granted < s.ReceiveBuffer {
		log.Warn().Int("receive_buffer", s.ReceiveBuffer).Int("granted", granted).Int("net.core.rmem_max", syslog.RmemMax()).Msgf(
			"the system grants a smaller receive buffer than configured: bursts of more than about %d short messages are dropped by the kernel. "+
				"Raise it with: sysctl -w net.core.rmem_max=%d", 2*granted/1280, s.ReceiveBuffer)
	}
}

// readPipe reads lines from a FIFO or standard input.
func (d *daemon) readPipe(f *feed, pipe *proc.Pipe, lines Lines, severity LineSeverity) {
	take := func(severity Severity) func(proc.Block) {
		o := &sink.Origin{
			Source: f.name, LocalHost: d.host, Zone: time.Local,
			Priority: userFacility | uint8(severity), Program: []byte(f.name),
		}
		return func(b proc.Block) { f.block(o, b) }
	}
	cfg, handler := d.lineConfig(lines), severity.of(take)
	cfg.Window = d.lineWindow(f.name, lineLabel{})
	reader := proc.NewReader(pipe, d.poller, cfg, handler)
	f.runs = append(f.runs, reader.Run)
	f.closers = append(f.closers, pipe)
	f.takeUpLines = func(w *buffer.Window, _ lineLabel) error {
		left, err := proc.OpenLeft(lineWindow{w}, cfg, handler)
		if err == nil {
			left.Lines(time.Now())
			reader.Resume(left)
		}
		return err
	}
}

const userFacility = 1 << 3

func (d *daemon) lineConfig(l Lines) proc.LineConfig {
	return proc.LineConfig{
		MaxLine: l.MaxLine, PartialTimeout: l.PartialTimeout, TrimCR: l.TrimCR,
		Start: l.Multiline.Start, RecordTimeout: l.Multiline.Timeout,
		Reserve: d.arena.Reserve, Release: d.arena.Unreserve,
	}
}

// policies of when_full.
func policy(w WhenFull) sink.Policy {
	switch w.Mode {
	case Block:
		return -1
	case Wait:
		return sink.Policy(w.Wait)
	}
	return 0
}

// route is where a section's messages go: for each sink, the streams that it
// gets (nil: all).
func route(section any) (sinks []string, streams map[string][]string, full WhenFull) {
	switch s := section.(type) {
	case SyslogSource:
		return s.Sinks, nil, s.WhenFull
	case FIFOSource:
		return s.Sinks, nil, s.WhenFull
	case StdinSource:
		return s.Sinks, nil, s.WhenFull
	case Program:
		streams = make(map[string][]string)
		for _, name := range s.Stdout {
			sinks = append(sinks, name)
			streams[name] = append(streams[name], proc.Stdout)
		}
		for _, name := range s.Stderr {
			if streams[name] == nil {
				sinks = append(sinks, name)
			}
			streams[name] = append(streams[name], proc.Stderr)
		}
		return sinks, streams, s.WhenFull
	}
	return nil, nil, WhenFull{}
}

// withoutRoute is a section as it is without what only says where messages
// go, or when it is started: two that are equal so need not be closed and
// opened anew.
func withoutRoute(section any) any {
	switch s := section.(type) {
	case SyslogSource:
		s.Sinks, s.WhenFull = nil, WhenFull{}
		return s
	case FIFOSource:
		s.Sinks, s.WhenFull = nil, WhenFull{}
		return s
	case StdinSource:
		s.Sinks, s.WhenFull = nil, WhenFull{}
		return s
	case Program:
		s.Sinks, s.Stdout, s.Stderr, s.WhenFull = nil, nil, nil, WhenFull{}
		s.Priority, s.DependsOn = 0, nil
		return s
	}
	return section
}

func sameOpening(a, b any) bool { return reflect.DeepEqual(withoutRoute(a), withoutRoute(b)) }
