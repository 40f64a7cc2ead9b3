package buffer

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Limits end a batch, whichever comes first.
type Limits struct {
	Messages int           // this many messages
	Bytes    int           // this many bytes of text; a larger message goes out alone
	Flush    time.Duration // this long after its first message
}

// Buffer gathers the messages of one sink: an open batch for each key, and
// the queue of sealed ones.
//
// Begin and End bracket appends, so that a burst of messages takes one lock;
// nothing between them blocks.
type Buffer struct {
	share *Share
	name  string // of the sink
	arena uint64 // of the batches that it seals: drawn anew for each buffer

	mu       sync.Mutex // guards all that follows; several sources fill one buffer
	limits   Limits
	spec     any
	note     *Note // of what is being appended; nil: nobody keeps one
	open     map[string]*Batch
	byBirth  list // open batches; the first is the next to end by age
	live     list // batches that are not done
	queue    []*Batch
	head     int // of the queue
	sequence uint64
	ready    chan struct{} // has an element when the queue was empty and no longer is
	timer    *time.Timer   // ends byBirth.first; armed while there is one
	closed   bool
	held     int  // bytes of memory that open batches have
	strain   bool // memory ran low and has not recovered
	last     *Batch
	seen     []*Batch       // what Look found
	seenAt   uint64         // it holds while sequence is this: nothing was sealed since
	touched  byte           // keeps what Look loads from being left out
	reached  map[string]int // bytes that a key's last batch reached, if over a page
	gaps     map[string]*gap
	stats    Stats
}

// Stats is what went through a buffer. At any moment
// Accepted = Delivered + sum of Lost + Buffered.
type Stats struct {
	Accepted       uint64
	Delivered      uint64
	DeliveredBytes uint64 // text of the delivered batches
	Lost           map[string]uint64
	Buffered       uint64
	Batches        [causes]uint64 // sealed, by cause
	Oldest         time.Time      // when the oldest message that is not done was received; zero: none
}

// maxReached bounds what is remembered of keys that may never come again.
const maxReached = 1 << 16

// New makes the buffer of the sink of that name, whose batches take their
// memory from share.
func New(name string, share *Share, limits Limits) *Buffer {
	b := &Buffer{
		share: share, name: name, arena: rand.Uint64(), limits: limits,
		open: make(map[string]*Batch), reached: make(map[string]int), gaps: make(map[string]*gap),
		byBirth: list{kind: openBatches}, live: list{kind: liveBatches},
		ready: make(chan struct{}, 1),
		stats: Stats{Lost: make(map[string]uint64)},
	}
	return b
}

// Begin opens a run of appends; no other is under way until End.
func (b *Buffer) Begin() { b.mu.Lock() }

// End ends what Begin began.
func (b *Buffer) End() {
	b.note = nil
	b.mu.Unlock()
}

// Keep notes in n what is appended, until End.
func (b *Buffer) Keep(n *Note) { b.note = n }

// Room returns a channel that is closed when memory is given back the next
// time, by whichever sink. Take it first, then try, then wait for it.
func (b *Buffer) Room() <-chan struct{} { return b.share.arena.Room() }

// IsOpen reports whether key has an open batch. The caller is between Begin
// and End.
func (b *Buffer) IsOpen(key []byte) bool { return b.find(key) != nil }

// find returns the open batch of key, or nil. The one found last is likely to
// be asked for again.
func (b *Buffer) find(key []byte) *Batch {
	if b.last != nil && b.last.Key == string(key) {
		return b.last
	}
	bt := b.open[string(key)]
	if bt != nil {
		b.last = bt
	}
	return bt
}

// Append copies one message, and LF if newline, to the open batch of key.
// It returns false, and has taken nothing, if there is no memory. Age is
// counted from received, which has a monotonic reading (time.Now).
// The caller is between Begin and End.
func (b *Buffer) Append(key []byte, text []byte, newline bool, received time.Time) bool {
	size := len(text)
	if newline {
		size++
	}
	bt := b.fit(key, size, received)
	if bt == nil {
		return false
	}
	bt.data = append(bt.data, text...)
	if newline {
		bt.data = append(bt.data, '\n')
	}
	b.tookLocked(bt, 1, size, received)
	return true
}

// AppendLines copies whole lines, each ending with LF, to open batches of
// key, as many in one copy as a batch has room for. It returns how many lines
// and bytes it took: less than all if there is no memory.
// The caller is between Begin and End.
func (b *Buffer) AppendLines(key []byte, text []byte, lines int, received time.Time) (tookLines, tookBytes int) {
	piece := b.limits.Bytes // what to try in one copy; less when memory is short
	for len(text) > 0 {
		n, size := b.firstLines(b.find(key), text, lines, piece)
		bt := b.fit(key, size, received)
		if bt == nil && n == 1 {
			break
		}
		if bt == nil {
			piece = size / 2
			continue
		}
		bt.data = append(bt.data, text[:size]...)
		b.note.Step(n)
		b.tookLocked(bt, n, size, received)
		text, lines = text[size:], lines-n
		tookLines, tookBytes = tookLines+n, tookBytes+size
	}
	return tookLines, tookBytes
}

// firstLines finds how many of the lines that text holds go into bt (nil: a
// new batch) within its limits and most bytes; if not one does, those that
// begin the batch after it. It is at least one.
func (b *Buffer) firstLines(bt *Batch, text []byte, lines, most int) (n, size int) {
	space, messages := b.limits.Bytes, b.limits.Messages
	if bt != nil {
		space, messages = space-len(bt.data), messages-bt.Messages
	}
	space = min(space, most)
	if len(text) <= space && lines <= messages {
		return lines, len(text)
	}
	fits := text[:min(space, len(text))]
	size = bytes.LastIndexByte(fits, '\n') + 1
	switch {
	case size == 0 && bt != nil:
		return b.firstLines(nil, text, lines, most)
	case size == 0:
		return 1, bytes.IndexByte(text, '\n') + 1
	}
	if n = bytes.Count(fits[:size], newline); n <= messages {
		return n, size
	}
	size = 0
	for range messages {
		size += bytes.IndexByte(text[size:], '\n') + 1
	}
	return messages, size
}

var newline = []byte{'\n'}

// tookLocked accounts for n messages of size bytes just copied to bt, and
// seals it if it is full. It stores to the entry, but reads nothing of it: that
// of a path among thousands is far away.
func (b *Buffer) tookLocked(bt *Batch, n, size int, received time.Time) {
	b.note.expect(bt.home, bt.data, content(len(bt.data)-size, bt.Messages))
	Step("append")
	bt.Messages += n
	bt.entry.publish(content(len(bt.data), bt.Messages), received.UnixNano())
	Step("publish")
	b.note.done()
	Step("done")
	b.stats.Accepted += uint64(n)
	b.stats.Buffered += uint64(n)
	switch {
	case bt.Messages >= b.limits.Messages:
		b.sealLocked(bt, ByMessages)
	case len(bt.data) >= b.limits.Bytes:
		b.sealLocked(bt, ByBytes)
	}
}

// fit returns the open batch of key with room for n more bytes: as it is,
// grown, or a new one. Nil if there is no memory.
func (b *Buffer) fit(key []byte, n int, received time.Time) *Batch {
	bt := b.find(key)
	if bt != nil {
		if len(bt.data)+n <= b.limits.Bytes && (n <= cap(bt.data)-len(bt.data) || b.grow(bt, n)) {
			return bt
		}
		switch {
		case b.open[bt.Key] != bt: // memory ran low, and it was sealed
		case len(bt.data)+n > b.limits.Bytes:
			b.sealLocked(bt, ByBytes)
		default:
			b.sealLocked(bt, ByPressure)
		}
	}
	return b.openLocked(string(key), n, received)
}

// grow moves an open batch to a larger piece, if there is one.
func (b *Buffer) grow(bt *Batch, n int) bool {
	b.relieve()
	if b.open[bt.Key] != bt {
		return false
	}
	reserved := nameRoom(b.name, bt.Key)
	piece, home := b.share.take(len(bt.data) + n + reserved)
	if piece == nil {
		return false
	}
	if home != bt.home { // a copy has to lie beside what it supersedes
		b.share.give(piece, home)
		return false
	}
	old := bt.piece()
	data := append(piece, bt.data...)
	entry := home.entryOf(piece)
	entry.succeed(piece, bt.entry, old, home.pageOf(old))
	bt.entry, bt.data = entry, data[:len(data):cap(data)-reserved]
	b.held += cap(piece) - cap(old)
	b.share.give(old, home)
	return true
}

// openLocked opens a batch that has room for n bytes. It begins at the size
// that the key's last one reached, or with what there is.
func (b *Buffer) openLocked(key string, n int, received time.Time) *Batch {
	b.relieve()
	size := n
	if !b.strain {
		size = max(n, min(b.reached[key], b.limits.Bytes))
	}
	reserved := nameRoom(b.name, key)
	piece, home := b.share.take(size + reserved)
	if piece == nil && size > n {
		piece, home = b.share.take(n + reserved)
	}
	if piece == nil {
		if _, used := b.share.balance(); b.held > used/2 {
			b.sealHeaviest() // or else they would hold their memory until they are old
		}
		return nil
	}
	b.held += cap(piece)
	bt := &Batch{
		Key: key, Spec: b.spec, First: received,
		data: piece[: 0 : cap(piece)-reserved], home: home, entry: home.entryOf(piece),
	}
	bt.entry.begin(piece, batchPiece, fingerprint(b.spec), b.share.arena.births.Add(1), received.UnixNano(), b.name, key)
	if g := b.gaps[key]; g != nil {
		bt.Dropped, g.fresh = g.fresh, 0
		bt.entry.dropped = uint32(bt.Dropped)
	}
	b.open[key] = bt
	b.last = bt
	b.byBirth.add(bt)
	b.live.add(bt)
	if b.byBirth.first == bt {
		b.arm(b.limits.Flush - time.Since(received))
	}
	return bt
}

// sealLocked ends an open batch and queues it.
func (b *Buffer) sealLocked(bt *Batch, cause Cause) {
	delete(b.open, bt.Key)
	b.byBirth.remove(bt)
	b.held -= cap(bt.piece())
	if b.byBirth.first == nil {
		b.timer.Stop()
	}
	if b.last == bt {
		b.last = nil
	}
	if len(bt.data) > PageSize {
		if len(b.reached) >= maxReached {
			clear(b.reached)
		}
		b.reached[bt.Key] = len(bt.data)
	} else {
		delete(b.reached, bt.Key)
	}
	b.sequence++
	bt.Arena, bt.Sequence, bt.Cause = b.arena, b.sequence, cause
	bt.entry.seal(bt.Arena, bt.Sequence, bt.Dropped)
	Step("seal")
	b.stats.Batches[cause]++
	b.enqueue(bt)
}

func (b *Buffer) enqueue(bt *Batch) {
	if b.head > len(b.queue)/2 {
		b.queue = slices.Delete(b.queue, 0, b.head)
		b.head = 0
	}
	b.queue = append(b.queue, bt)
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// arm sets the timer to go off in d. It is a timer of the first message of
// the oldest batch, not a tick: with nothing open, none is armed. It may go
// off early, where that batch was sealed before its time, but never late.
func (b *Buffer) arm(d time.Duration) {
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.expire)
	} else {
		b.timer.Reset(d)
	}
}

// expire seals the batches that are old enough.
func (b *Buffer) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for bt := b.byBirth.first; bt != nil; bt = b.byBirth.first {
		if left := b.limits.Flush - time.Since(bt.First); left > 0 {
			b.arm(left)
			return
		}
		b.sealLocked(bt, ByAge)
	}
}

// SetSpec ends all open batches and sets what the next ones are sealed by
// and carry along. The caller is between Begin and End.
func (b *Buffer) SetSpec(limits Limits, spec any) {
	b.sealAllLocked(ByReopen)
	b.limits, b.spec = limits, spec
}

// Seal ends all open batches.
func (b *Buffer) Seal(cause Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealAllLocked(cause)
}

func (b *Buffer) sealAllLocked(cause Cause) {
	for b.byBirth.first != nil {
		b.sealLocked(b.byBirth.first, cause)
	}
}

// Mark ends all open batches and puts a mark behind them into the queue.
func (b *Buffer) Mark() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealAllLocked(ByReopen)
	b.enqueue(&Batch{Mark: true, Cause: ByReopen})
}

// Close ends all open batches. Nothing may be appended afterwards; what is
// queued is still handed out.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealAllLocked(ByShutdown)
	b.closed = true
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// Ready gets an element when Next has something, and when the buffer is
// closed.
func (b *Buffer) Ready() <-chan struct{} { return b.ready }

// Next hands over the next sealed batch or mark; nil if none is queued, and
// then whether the buffer is closed.
func (b *Buffer) Next() (bt *Batch, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.head == len(b.queue) {
		return nil, b.closed
	}
	bt = b.queue[b.head]
	b.queue[b.head] = nil
	if b.head++; b.head == len(b.queue) {
		b.queue, b.head = b.queue[:0], 0
	}
	return bt, false
}

// Done ends a batch from Next, once: lost of its messages are lost for the
// reason, the others delivered. Its memory is given back. A mark needs none.
func (b *Buffer) Done(bt *Batch, lost int, reason string) {
	if bt.Mark {
		return
	}
	b.mu.Lock()
	b.live.remove(bt)
	b.stats.Buffered -= uint64(bt.Messages)
	b.stats.Delivered += uint64(bt.Messages - lost)
	if lost > 0 {
		b.stats.Lost[reason] += uint64(lost)
	}
	if lost < bt.Messages {
		b.stats.DeliveredBytes += uint64(len(bt.data))
	}
	b.mu.Unlock()
	bt.entry.free()
	Step("release")
	if bt.left != nil {
		bt.left.done(b.share, bt)
	} else {
		b.share.give(bt.piece(), bt.home)
	}
	bt.data, bt.entry = nil, nil
}

// Stats returns the numbers as they are at this moment.
func (b *Buffer) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Lost = maps.Clone(b.stats.Lost)
	if b.live.first != nil {
		s.Oldest = b.live.first.First
	}
	return s
}
