package main

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/proc"
	"logboom/sink"
	"logboom/syslog"
)

// input is one source or program: it takes what comes in by it to the edges
// that lead to its sinks, and counts.
type input struct {
	name string
	log  zerolog.Logger

	// mu makes calls follow each other: two streams, or many connections, can
	// bring messages at the same time. It is held while an edge waits.
	mu    sync.Mutex
	edges []*edge

	counts sync.Mutex // guards what follows, and the numbers of edges
	sum    received
	past   uint64 // kernel drops of sockets that a reload has closed

	kernel  func() uint64 // datagrams that the kernel dropped; nil: it cannot
	onDrop  func()        // called when there are more
	refused func() uint64 // datagrams and connections that were not allowed in; nil: it cannot
	seen    uint64        // of kernel: told in the streams and in the log
	looked  time.Time     // guarded by mu
}

// received is what came in.
type received struct {
	Messages  uint64
	Bytes     uint64
	Truncated uint64
}

// edge is a sink that an input leads to, for some of its streams.
type edge struct {
	*sink.Edge
	streams []string // nil: all
	// Guarded by counts:
	tally    sink.Tally
	dropping uint64 // in the gap that is open
	reason   string // of the gap
	since    time.Time
	last     time.Time
}

// reorder puts the edges that never wait first, so that a full file does not
// hold up what goes to a remote.
func reorder(edges []*edge) {
	slices.SortStableFunc(edges, func(a, b *edge) int {
		switch {
		case a.Waits() == b.Waits():
			return 0
		case a.Waits():
			return 1
		}
		return -1
	})
}

// messages takes a burst from a listener, borrowed for the call. Where it lies
// in a window, which may be nil, this notes how far each sink has got: one that
// was left behind is continued where it was interrupted.
func (in *input) messages(o *sink.Origin, ms []syslog.Message, w *buffer.Window) {
	in.mu.Lock()
	defer in.mu.Unlock()
	sum := received{Messages: uint64(len(ms))}
	for i := range ms {
		sum.Bytes += uint64(len(ms[i].Message))
		if ms[i].Truncated {
			sum.Truncated++
		}
	}
	in.lookForKernelDrops()
	tallies := make([]sink.Tally, 0, 8)
	for _, e := range in.edges {
		note := w.Note(e.Sink().Name())
		had := note.Had(0, len(ms))
		t := e.Follow(note).Append(o, ms[had:])
		t.Accepted += uint64(had)
		tallies = append(tallies, t)
	}
	in.commit(sum, tallies)
}

// block takes lines, a piece of one, or a record of several, from a pipe, borrowed for the call.
func (in *input) block(o *sink.Origin, b proc.Block) {
	text, piece := b.Text, b.Partial || b.Last || b.Record
	if piece {
		if n := len(text); n > 0 && text[n-1] == '\n' {
			text = text[:n-1]
		}
		if len(text) == 0 {
			return // the LF, or the end, of a line that was given out before
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var w *buffer.Window
	if kept, ok := b.Window.(lineWindow); ok {
		w = kept.Window
	}
	sum := received{Messages: uint64(b.Lines), Bytes: uint64(len(text))}
	tallies := make([]sink.Tally, 0, 8)
	for _, e := range in.edges {
		switch {
		case e.streams != nil && !slices.Contains(e.streams, o.Stream):
			tallies = append(tallies, sink.Tally{Filtered: sum.Messages})
		default:
			tallies = append(tallies, e.take(o, text, b, piece, w.Note(e.Sink().Name())))
		}
	}
	in.commit(sum, tallies)
}

// take appends what the note says that the sink does not have yet: all, unless
// the block was left behind.
func (e *edge) take(o *sink.Origin, text []byte, b proc.Block, piece bool, note *buffer.Note) sink.Tally {
	had := note.Had(b.Before, b.Lines)
	if piece {
		if had > 0 {
			return sink.Tally{Accepted: 1}
		}
		return e.Follow(note).AppendPiece(o, text, b.Partial, b.Received)
	}
	for range had {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	t := e.Follow(note).AppendLines(o, text, b.Lines-had, b.Received)
	t.Accepted += uint64(had)
	return t
}

// commit counts what a call brought and what became of it, at once, so that
// the numbers are balanced at any moment.
func (in *input) commit(sum received, tallies []sink.Tally) {
	now := time.Now()
	in.counts.Lock()
	defer in.counts.Unlock()
	in.sum.Messages += sum.Messages
	in.sum.Bytes += sum.Bytes
	in.sum.Truncated += sum.Truncated
	for i, t := range tallies {
		e := in.edges[i]
		e.tally.Add(t)
		e.gapGrows(in, t.Dropped, sink.MemoryFull, now)
		e.gapGrows(in, t.Stopped, sink.Stopped, now)
		if t.Dropped+t.Stopped == 0 && e.dropping > 0 && now.Sub(e.last) > time.Second {
			e.gapEnds(in)
		}
	}
}

// gapBegun and gapOver are what the log says of a gap, by its reason.
var (
	gapBegun = map[string]string{sink.MemoryFull: "dropping messages: memory full", sink.Stopped: "dropping messages: stopped"}
	gapOver  = map[string]string{sink.MemoryFull: "messages were dropped: memory full", sink.Stopped: "messages were dropped: stopped"}
)

// gapGrows and gapEnds log a gap when it begins and when it is over; what is
// dropped within a second of the last, for the same reason, belongs to the same
// gap.
func (e *edge) gapGrows(in *input, n uint64, reason string, now time.Time) {
	if n == 0 {
		return
	}
	if e.dropping > 0 && reason != e.reason {
		e.gapEnds(in)
	}
	if e.dropping == 0 {
		e.since, e.reason = now, reason
		in.log.Warn().Str("to", e.Sink().Name()).Msg(gapBegun[reason])
	}
	e.dropping += n
	e.last = now
}

func (e *edge) gapEnds(in *input) {
	in.log.Warn().Str("to", e.Sink().Name()).Uint64("messages", e.dropping).Dur("within", e.last.Sub(e.since)).
		Msg(gapOver[e.reason])
	e.dropping = 0
}

// endGaps logs the gaps that are open when nothing more will come.
func (in *input) endGaps() {
	in.counts.Lock()
	defer in.counts.Unlock()
	for _, e := range in.edges {
		if e.dropping > 0 {
			e.gapEnds(in)
		}
	}
}

// lookForKernelDrops tells, once a second at most and only while messages
// come in, of datagrams that the kernel dropped since.
func (in *input) lookForKernelDrops() {
	now := time.Now()
	if now.Sub(in.looked) < time.Second {
		return
	}
	in.looked = now
	in.counts.Lock()
	if in.kernel == nil {
		in.counts.Unlock()
		return
	}
	dropped := in.kernel()
	n, save := dropped-in.seen, in.onDrop
	in.seen = dropped
	in.counts.Unlock()
	if n == 0 {
		return
	}
	save()
	in.log.Warn().Uint64("messages", n).Uint64("in_all", dropped).
		Msg("messages were dropped by the kernel: the receive queue was full (receive_buffer)")
	for _, e := range in.edges {
		e.Gap(int(n), sink.KernelQueue)
	}
}

// setEdges leads the input to other sinks. An edge to a sink that it led to
// before keeps its numbers; to a new one, all that came in before counts as
// filtered.
func (in *input) setEdges(edges []*edge) {
	reorder(edges)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.counts.Lock()
	defer in.counts.Unlock()
	for _, e := range edges {
		e.tally = sink.Tally{Filtered: in.sum.Messages}
		for _, old := range in.edges {
			if old.Sink() == e.Sink() {
				e.tally, e.dropping, e.since, e.last = old.tally, old.dropping, old.since, old.last
			}
		}
	}
	in.edges = edges
}
