package sink

import (
	"bytes"
	"time"

	"logboom/buffer"
	"logboom/syslog"
)

// Policy is what an edge does with a message when the sink's memory is full:
// wait for room at most so long, then drop until there is room.
// 0: drop at once; below 0: wait for ever.
type Policy time.Duration

// Reasons of drops.
const (
	MemoryFull  = "memory full"
	KernelQueue = "kernel queue full"
	Stopped     = "stopped"
)

// Tally counts what an edge did with the messages of one call. Together they
// are all of them.
type Tally struct {
	Accepted uint64
	Filtered uint64
	Dropped  uint64 // for want of memory
	Stopped  uint64 // dropped because the daemon stops and cannot wait
}

// Add adds the numbers of another call.
func (t *Tally) Add(u Tally) {
	t.Accepted += u.Accepted
	t.Filtered += u.Filtered
	t.Dropped += u.Dropped
	t.Stopped += u.Stopped
}

// Edge leads from one source to one sink. It belongs to the source: its
// methods are not called at the same time.
type Edge struct {
	sink     *Sink
	policy   Policy
	giveUp   <-chan struct{}
	dropping bool         // waited in vain; until there is room
	note     *buffer.Note // of what the next call brings
	m        syslog.Message
	key      []byte

	// Of messages that are about to be appended; none after a wait, in which
	// Set may have come in.
	keys  [][]byte
	paths []byte // the memory of keys
	at    int    // which of them is next
}

// Edge makes an edge. No wait lasts beyond giveUp.
func (s *Sink) Edge(policy Policy, giveUp <-chan struct{}) *Edge {
	return &Edge{sink: s, policy: policy, giveUp: giveUp}
}

// Sink is where the edge leads to.
func (e *Edge) Sink() *Sink { return e.sink }

// Waits reports whether the edge can hold its source up.
func (e *Edge) Waits() bool { return e.policy != 0 }

// Follow makes the next call note in n what it is doing.
func (e *Edge) Follow(n *buffer.Note) *Edge {
	e.note = n
	return e
}

func (e *Edge) begin() {
	e.sink.buf.Begin()
	e.sink.buf.Keep(e.note)
}

func (e *Edge) end() {
	e.sink.buf.End()
	e.note = nil
}

// Append takes messages on, copying them.
func (e *Edge) Append(o *Origin, ms []syslog.Message) Tally {
	var t Tally
	e.begin()
	defer e.end()
	for len(ms) > 0 {
		next := ms[:min(len(ms), together)]
		ms = ms[len(next):]
		e.lookLocked(o, next)
		for i := range next {
			e.at = i
			e.appendLocked(o, &next[i], &t)
		}
		e.keys = e.keys[:0]
	}
	return t
}

const (
	together = 32 // messages whose batches are looked up before they are appended
	crowd    = 64 // open batches, from which on that is worth while
)

// lookLocked renders the paths of messages and looks their batches up.
func (e *Edge) lookLocked(o *Origin, ms []syslog.Message) {
	s := e.sink
	if s.filters || s.naming.fixed() || s.buf.Open() < crowd {
		return
	}
	e.paths = e.paths[:0]
	size := 0
	for i := range ms {
		from := len(e.paths)
		e.paths = s.naming.render(e.paths, &ms[i], o)
		e.keys = append(e.keys, e.paths[from:])
		size = max(size, len(ms[i].Message)+1)
	}
	s.buf.Look(e.keys, size)
}

// appendLocked takes one message on.
func (e *Edge) appendLocked(o *Origin, m *syslog.Message, t *Tally) {
	s := e.sink
	if s.filters && !s.conf.Match.takes(m) {
		t.Filtered++
		e.note.Skip(1)
		return
	}
	e.note.Step(1)
	if e.tryLocked(o, m) {
		t.Accepted++
		e.dropping = false
		return
	}
	switch e.waitLocked(o, m) {
	case waited:
		t.Accepted++
	case overdue:
		t.Dropped++
		s.buf.Drop(e.key, 1, MemoryFull)
		e.note.Skip(1)
	case stopping:
		t.Stopped++
		s.buf.Drop(e.key, 1, Stopped)
		e.note.Skip(1)
	}
}

// tryLocked encodes one message and appends it. What is to be told of dropped
// ones goes before it, in one piece with it: where memory is short there is
// one notice for a gap, not one for each try.
func (e *Edge) tryLocked(o *Origin, m *syslog.Message) bool {
	s := e.sink
	if e.at < len(e.keys) {
		s.buf.Seen(e.at)
		e.key = s.naming.admit(append(e.key[:0], e.keys[e.at]...), m, o, s.buf)
	} else {
		e.key = s.naming.key(e.key[:0], m, o, s.buf)
	}
	gap, ends := s.buf.Gap(e.key)
	tell := ends && s.conf.Notices
	var record []byte
	var newline bool
	if tell {
		record, newline = s.enc.encodeWithNotice(gap, m, o)
	} else {
		record, newline = s.enc.encode(m, o)
	}
	if !s.buf.Append(e.key, record, newline, m.Received) {
		return false
	}
	s.naming.took(1)
	if ends {
		s.buf.Told(e.key)
	}
	if tell {
		s.notices++
	}
	return true
}

type waitResult uint8

const (
	waited waitResult = iota
	overdue
	stopping
)

// waitLocked tries until there is room for m, as long as the policy allows.
// It gives up the lock while it waits.
func (e *Edge) waitLocked(o *Origin, m *syslog.Message) waitResult {
	if e.policy == 0 || e.dropping {
		return overdue
	}
	var timeout <-chan time.Time
	if e.policy > 0 {
		timer := time.NewTimer(time.Duration(e.policy))
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		// Asked for before the try, so that no news of room is missed.
		room := e.sink.buf.Room()
		if e.tryLocked(o, m) {
			return waited
		}
		if result := e.sleepUnlocked(room, timeout); result != waited {
			return result
		}
	}
}

func (e *Edge) sleepUnlocked(room <-chan struct{}, timeout <-chan time.Time) waitResult {
	e.sink.buf.End()
	e.keys = e.keys[:0]
	defer e.begin()
	select {
	case <-room:
		return waited
	case <-timeout:
		e.dropping = true
		return overdue
	case <-e.giveUp:
		return stopping
	}
}

// AppendLines takes on whole lines, each ending with LF, copying them: in one
// go where a line is a record as it is.
func (e *Edge) AppendLines(o *Origin, text []byte, lines int, received time.Time) Tally {
	var t Tally
	e.begin()
	defer e.end()
	e.m = syslog.Message{Received: received}
	e.m.Priority, e.m.Tag, e.m.PID = o.Priority, o.Program, o.PID
	clean := bytes.IndexByte(text, '\r') < 0 && bytes.IndexByte(text, 0) < 0
	for {
		n, size := e.bulkLocked(o, text, lines, clean)
		t.Accepted += uint64(n)
		text, lines = text[size:], lines-n
		if len(text) == 0 {
			break
		}
		// One by one: the policy, and what is to be told, are of one message.
		end := bytes.IndexByte(text, '\n')
		e.m.Message = text[:end]
		text, lines = text[end+1:], lines-1
		e.appendLocked(o, &e.m, &t)
	}
	e.m = syslog.Message{}
	return t
}

// bulkLocked takes as many lines at once as there is room for: none where each
// has to be looked at, and none after a gap, which its first line is to tell.
// It asks anew each time, since Set may come in while a line waits.
func (e *Edge) bulkLocked(o *Origin, text []byte, lines int, clean bool) (tookLines, tookBytes int) {
	s := e.sink
	if s.filters || !s.naming.perBurst() || !s.enc.asLines(clean) {
		return 0, 0
	}
	e.key = s.naming.key(e.key[:0], &e.m, o, s.buf)
	if _, gap := s.buf.Gap(e.key); gap {
		return 0, 0
	}
	tookLines, tookBytes = s.buf.AppendLines(e.key, text, lines, e.m.Received)
	if tookLines > 0 {
		s.naming.took(tookLines)
		e.dropping = false
	}
	return tookLines, tookBytes
}

// AppendPiece takes on text of a pipe that is no whole line: a piece of one,
// or a last one without LF.
func (e *Edge) AppendPiece(o *Origin, text []byte, partial bool, received time.Time) Tally {
	e.m = syslog.Message{Received: received, Partial: partial}
	e.m.Priority, e.m.Tag, e.m.PID, e.m.Message = o.Priority, o.Program, o.PID, text
	var t Tally
	e.begin()
	defer e.end()
	e.appendLocked(o, &e.m, &t)
	e.m = syslog.Message{}
	return t
}

// Gap notes that n messages were lost before they could be received, to be
// told in the stream before the next message.
func (e *Edge) Gap(n int, reason string) {
	s := e.sink
	s.buf.Begin()
	defer s.buf.End()
	if s.naming.fixed() {
		e.key = s.naming.key(e.key[:0], &syslog.Message{Received: time.Now()}, &Origin{}, s.buf)
		s.buf.Drop(e.key, n, reason)
	}
}
