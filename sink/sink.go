// Package sink takes messages on and delivers them in batches: to files and
// to remote syslog servers.
//
// A [Sink] is an intake and a runner with the sink's [buffer.Buffer] between
// them. Sources append to it through edges ([Edge]), which filter, encode and
// decide what happens when memory is full. The runner delivers sealed batches
// through a [Deliverer], retries those that failed, and accounts for each.
package sink

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/gzipwriter"
	"logboom/syslog"
)

// Origin is what the messages of one source, or of one stream of a program,
// have in common.
type Origin struct {
	Source    string         // the source's name in the config
	Stream    string         // stdout or stderr of a program
	LocalHost string         // of messages that name no host and have no peer
	Zone      *time.Location // of times without a zone; nil: UTC

	// Of lines, which have no header of their own:
	Priority uint8
	Program  []byte
	PID      []byte
}

// appendHost appends a message's host: its own, or the sender's address, or
// this machine's name.
func (o *Origin) appendHost(dst []byte, m *syslog.Message) []byte {
	switch {
	case len(m.Host) > 0:
		return append(dst, m.Host...)
	case m.Peer != "":
		return append(dst, m.Peer...)
	}
	return append(dst, o.LocalHost...)
}

// time is a message's time: its own, or that of its receipt.
func (o *Origin) time(m *syslog.Message) time.Time {
	if o.Zone == nil {
		return m.Time(m.Received, time.UTC)
	}
	return m.Time(m.Received, o.Zone)
}

// Config is what a sink is made of.
type Config struct {
	Name     string
	Limits   buffer.Limits
	Memory   int // guaranteed share in bytes
	Format   Format
	Template *Template // of the format Templated
	Escape   Escape
	Framing  Framing
	Notices  bool // a line in the stream where messages were dropped
	Match    Match
	Retry    Backoff

	// Path and File are of a file sink, Forward of a syslog sink.
	Path        *Path
	MaxNewFiles int // names a minute that variables may invent
	File        File
	Forward     *Forward
}

// UsesPeer reports whether the sink may write a sender's address: as the peer,
// or as the host of a message that names none.
func (c *Config) UsesPeer() bool {
	if c.Path != nil && c.Path.usesPeer() {
		return true
	}
	switch c.Format {
	case Raw:
		return false
	case Templated:
		return usesPeer(c.Template.parts)
	}
	return true
}

// Sink is one destination of messages.
type Sink struct {
	name  string
	share *buffer.Share
	buf   *buffer.Buffer
	run   *runner

	// The intake; guarded by buf's lock (Begin, End).
	conf    Config
	spec    any // of its batches
	enc     encoder
	naming  naming
	filters bool
	notices uint64 // lines of the daemon's own
}

// New makes a sink. It opens nothing: a file is made with its first batch,
// and a remote is dialled with its first.
func New(conf Config, arena *buffer.Arena, log zerolog.Logger) *Sink {
	log = log.With().Str("sink", conf.Name).Logger()
	s := &Sink{name: conf.Name, share: arena.Share(conf.Memory)}
	s.buf = buffer.New(s.name, s.share, conf.Limits)
	s.naming = newNaming(s.name, log)
	s.run = newRunner(s.buf, conf.Retry, log)
	if conf.Forward != nil {
		s.run.to = newForwarder(conf.Forward, &s.run.counters, log)
	} else {
		s.run.to = newFiles(&s.run.counters, log)
	}
	s.configure(conf)
	return s
}

// Name is the sink's name in the config.
func (s *Sink) Name() string { return s.name }

// Set changes the configuration while messages go on. What was taken before
// is delivered as it was meant, but a syslog sink delivers it to its new
// targets. The kind of a sink cannot change.
func (s *Sink) Set(conf Config) {
	s.configure(conf)
	s.share.Resize(conf.Memory)
	s.run.set(conf.Retry, conf.Forward)
}

func (s *Sink) configure(conf Config) {
	existing := s.naming.lookAround(conf.Path, conf.MaxNewFiles)
	s.buf.Begin()
	defer s.buf.End()
	s.setLocked(conf)
	s.naming.set(conf.Path, conf.MaxNewFiles, existing)
}

func (s *Sink) setLocked(conf Config) {
	var spec any = conf.Framing
	if conf.Forward == nil {
		file := conf.File
		if conf.Path != nil {
			file.Prefix = conf.Path.Prefix()
			file.varies = conf.Path.variables
			file.families = familiesOf(conf.Path)
			file.timed = conf.Path.variables && conf.Path.marks
			if !conf.Path.variables {
				file.MaxOpen = 1 // a name that another has followed is not written to again
			}
		}
		spec = &file
		conf.Limits.Bytes = min(conf.Limits.Bytes, gzipwriter.MaxText)
	}
	s.spec = spec
	s.buf.SetSpec(conf.Limits, spec)
	s.conf = conf
	s.filters = conf.Match.isSet()
	s.enc = encoder{sink: s.name, format: conf.Format, escape: conf.Escape, framing: conf.Framing, template: conf.Template}
}

// Resize changes the guaranteed share of memory, in bytes, and nothing else.
func (s *Sink) Resize(memory int) { s.share.Resize(memory) }

// Run delivers until Close has been called and all is delivered, or until
// giveUp is closed. It returns how many messages are undelivered.
func (s *Sink) Run(giveUp <-chan struct{}) int {
	return s.run.loop(giveUp)
}

// Flush sends what is open on its way now.
func (s *Sink) Flush() { s.buf.Seal(buffer.ByReopen) }

// Reopen writes what was taken so far to the files as they are, and what
// comes later to files opened anew by name.
func (s *Sink) Reopen() { s.buf.Mark() }

// Close ends the intake: no edge may append afterwards.
func (s *Sink) Close() { s.buf.Close() }

// Release gives the sink's share of memory back. Run has returned.
func (s *Sink) Release() { s.share.Close() }

// Status is a sink's state at one moment.
type Status struct {
	buffer.Stats
	State      string // ok, failing
	LastError  string
	Writes     uint64
	Retries    uint64
	Resent     uint64
	Notices    uint64 // lines of the daemon's own in the stream
	Overflowed uint64 // messages that went to the overflow file
}

// Status returns the sink's numbers.
func (s *Sink) Status() Status {
	st := Status{
		Stats:   s.buf.Stats(),
		State:   "ok",
		Writes:  s.run.writes.Load(),
		Retries: s.run.retries.Load(),
		Resent:  s.run.resent.Load(),
	}
	s.buf.Begin()
	st.Overflowed, st.Notices = s.naming.overflowed, s.notices
	s.buf.End()
	failing, last := s.run.state()
	if failing {
		st.State = "failing"
	}
	st.LastError = last
	return st
}

// Refusals gets an element after messages were refused for ever.
func (s *Sink) Refusals() <-chan struct{} { return s.run.refusals }

// OnWrite sets what is called with the duration of each write, from the
// runner's goroutine. Before Run.
func (s *Sink) OnWrite(f func(time.Duration)) { s.run.onWrite = f }

// counters are the runner's, readable at any time.
type counters struct {
	writes, retries, resent atomic.Uint64
}

// health is how the runner's deliveries go.
type health struct {
	mu      sync.Mutex // guards the rest
	failing bool
	last    string // error; kept after the recovery
}

func (h *health) set(failing bool, last string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing = failing
	if last != "" {
		h.last = last
	}
}

// note keeps the error of messages that are lost, while others go on.
func (h *health) note(last string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = last
}

func (h *health) state() (failing bool, last string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failing, h.last
}
