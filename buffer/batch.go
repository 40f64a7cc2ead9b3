package buffer

import (
	"time"
	"unsafe"
)

// Cause is why a batch ended.
type Cause uint8

const (
	ByMessages Cause = iota
	ByBytes
	ByAge
	ByPressure // memory ran low
	ByReopen
	ByShutdown
	causes
)

func (c Cause) String() string {
	return [...]string{"messages", "bytes", "age", "pressure", "reopen", "shutdown"}[c]
}

// Causes are all of them, in order.
func Causes() []Cause {
	all := make([]Cause, causes)
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}

// Batch is the messages that go out together. It has one holder at a time:
// the Buffer while it is open, then the queue, then whoever got it from Next,
// who ends it with Done.
type Batch struct {
	// What an append reads and writes lies together: with thousands of open
	// batches each line of the cache that it touches is a miss.
	Key      string // what its messages have in common: the rendered path of a file
	data     []byte
	entry    *descriptor // of the piece that data lies in
	home     *segment    // that the piece lies in; nil: one that was left behind
	Messages int         // without notices

	Spec     any       // what was set with SetSpec when it was opened
	Dropped  int       // messages dropped for this key since the batch before
	First    time.Time // receive time of the first message
	Sequence uint64    // counts the batches of a buffer, from 1, in order of sealing
	Arena    uint64    // with Sequence it names the batch: no other ever has both
	Cause    Cause
	Mark     bool   // no batch: a mark set by Buffer.Mark
	Intent   *Place // where a process that was killed was about to write it; nil: nowhere

	left  *Left   // the arena left behind that it lies in; nil: the sink's own
	links [2]link // in the lists below
}

// Intend notes where in a file the batch is about to be written: after a kill
// the next process looks there before it writes it again.
func (b *Batch) Intend(p Place) { b.entry.intend(p) }

// Last is when the last message was received, until Done.
func (b *Batch) Last() time.Time { return time.Unix(0, b.entry.last) }

// Bytes is the text of the batch. It is valid until Done.
func (b *Batch) Bytes() []byte { return b.data }

// piece is the whole piece that the text lies in.
func (b *Batch) piece() []byte {
	size := PageSize << b.entry.order
	return unsafe.Slice(unsafe.SliceData(b.data), size)[:0:size]
}

// fingerprint is what is kept of a Spec for whoever finds the batch after a
// kill.
func fingerprint(spec any) uint64 {
	if f, ok := spec.(interface{ Fingerprint() uint64 }); ok {
		return f.Fingerprint()
	}
	return 0
}

// list is an intrusive list of batches, the oldest First first. A batch can be
// in one list of each kind.
type list struct {
	kind        listKind
	first, last *Batch
}

type listKind uint8

const (
	openBatches listKind = iota // those that still take messages
	liveBatches                 // those that are not done
)

type link struct{ next, prev *Batch }

// add puts b behind those that are as old or older. That is nearly always the
// end: only a source that waited for room comes late with what it received.
func (l *list) add(b *Batch) {
	prev := l.last
	for prev != nil && b.First.Before(prev.First) {
		prev = prev.links[l.kind].prev
	}
	next := l.first
	if prev == nil {
		l.first = b
	} else {
		next = prev.links[l.kind].next
		prev.links[l.kind].next = b
	}
	if next == nil {
		l.last = b
	} else {
		next.links[l.kind].prev = b
	}
	b.links[l.kind] = link{next: next, prev: prev}
}

func (l *list) remove(b *Batch) {
	at := b.links[l.kind]
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[l.kind].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[l.kind].prev = at.prev
	}
	b.links[l.kind] = link{}
}
