package buffer

import (
	"hash/fnv"
	"sync/atomic"
	"unsafe"
)

// Window is memory of an arena that the kernel writes messages into, and the
// notes of what has become of them: how far each sink has got. After a kill it
// tells which messages had left the kernel's queue and were in no batch yet.
//
// It belongs to the goroutine that receives. What it holds is one burst at a
// time: Begin, receive, append under a Note for each sink, End.
type Window struct {
	Source string // whose messages these are
	Label  string // what else its owner has to know of it

	arena  *Arena // nil: it was left behind
	home   *segment
	left   *Left
	region *region
	entry  *descriptor
	piece  []byte
	burst  *uint64 // atomic; number of the burst<<1, plus 1 while it is not done
	notes  []noteRecord
	kept   []*Note
}

// noteRecord is a note as it lies in the arena.
type noteRecord struct {
	sink   uint64 // hash of its name
	burst  uint64 // the note is of this burst
	at     uint32 // messages that the sink is done with
	next   uint32 // when the append that is under way is done; at: there is none
	page   uint32 // of the piece that it goes to,
	_      uint32
	arena  uint64 // in this arena,
	before uint64 // which had published this
}

// minWindow is the pages of the smallest window: the entries that its pages do
// not need hold the notes.
const minWindow = 4

// NewWindow takes a window of at least n bytes out of what is set aside, or
// common. The memory is zeroed. Nil: there is no room.
func (a *Arena) NewWindow(source, label string, n int) *Window {
	w := a.newWindow(source, label, n)
	if w != nil {
		w.activate()
	}
	return w
}

// Resize takes another window for the same messages. A replay does not see it
// before Replace. Nil: there is no room. A larger one leaves a quarter of what is
// set aside, so that each source finds room for a small one.
func (w *Window) Resize(n int) *Window {
	if n > len(w.piece) && !w.arena.leaves(n) {
		return nil
	}
	return w.arena.newWindow(w.Source, w.Label, n)
}

// leaves reports whether Reserve of n bytes leaves a quarter of what is set
// aside.
func (a *Arena) leaves(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.aside-a.reserved, 0)+max(a.common, 0)-n >= a.aside/4
}

// Replace puts a window from Resize in the place of others, with one store, and
// closes them. What they held was copied.
func (w *Window) Replace(others ...*Window) {
	var replaced [2]replacedWindow
	for i, old := range others {
		replaced[i] = replacedWindow{old.region.header().id, uint64(old.region.pageOf(old.piece)) + 1}
	}
	w.entry.setReplaced(replaced)
	w.activate()
	Step("replace")
	for _, old := range others {
		old.Close()
	}
	w.entry.setReplaced([2]replacedWindow{})
}

// Move goes on in other memory of at least n bytes, into which fill writes what
// it is to hold: with one store that counts, and what was held before does not.
// False: there is no room, and nothing has changed. No burst may be open.
func (w *Window) Move(n int, fill func(memory []byte)) bool {
	next := w.Resize(n)
	if next == nil {
		return false
	}
	fill(next.Memory())
	next.Replace(w)
	*w = *next
	return true
}

func (w *Window) activate() {
	w.entry.begin(w.piece[:0], windowPiece, uint64(len(w.piece)/PageSize), w.arena.births.Add(1), 0, w.Source, w.Label)
}

func (a *Arena) newWindow(source, label string, n int) *Window {
	pages := max((n+PageSize-1)/PageSize, minWindow)
	size := pages * PageSize
	if !a.Reserve(size) {
		return nil
	}
	a.mu.Lock()
	home := a.current
	page := home.popPages(pages)
	a.mu.Unlock()
	if page == none {
		a.Unreserve(size)
		return nil
	}
	w := home.window(int(page), pages)
	w.Source, w.Label, w.arena, w.home = source, label, a, home
	clear(w.piece)
	w.clearNotes()
	w.entry.setReplaced([2]replacedWindow{})
	return w
}

// window finds the parts of the window that begins at a page.
func (r *region) window(page, pages int) *Window {
	spare := unsafe.Pointer(&r.table[page+1])
	n := (pages-1)*entrySize/int(unsafe.Sizeof(noteRecord{})) - 1
	notes := unsafe.Slice((*noteRecord)(spare), n+1)
	return &Window{
		region: r,
		entry:  &r.table[page], piece: r.pieceOf(page, pages),
		burst: (*uint64)(spare), notes: notes[1:],
	}
}

func (w *Window) clearNotes() {
	atomic.StoreUint64(w.burst, 0)
	clear(w.notes)
}

// Memory is what the window holds.
func (w *Window) Memory() []byte { return w.piece }

// Begin says that what the memory holds from now on is to be taken up after a
// kill.
func (w *Window) Begin() { atomic.StoreUint64(w.burst, *w.burst|1) }

// End says that all that the memory holds is done.
func (w *Window) End() { atomic.StoreUint64(w.burst, (*w.burst|1)+1) }

// IsOld reports whether the arena has been renewed since: new windows lie
// elsewhere, and the memory of this one is wanted back.
func (w *Window) IsOld() bool { return w.arena != nil && w.home != w.arena.segment() }

// IsOpen reports whether a burst has begun and not ended.
func (w *Window) IsOpen() bool { return *w.burst&1 != 0 }

// Close gives the memory back. All that it holds must be done.
func (w *Window) Close() error {
	w.clearNotes() // what is left in the table must not look like an entry
	w.entry.free()
	if w.left != nil {
		return w.left.Release()
	}
	a, size := w.arena, len(w.piece)
	poison(w.piece)
	a.mu.Lock()
	w.home.mergePages(w.home.pageOf(w.piece), len(w.piece)/PageSize)
	a.mu.Unlock()
	a.drop(w.home)
	a.Unreserve(size)
	return nil
}

// Note is how far a sink has got with the burst that has begun. Nil, which all
// methods take, if the window has no room for another sink: then a message may
// come twice after a kill.
func (w *Window) Note(sink string) *Note {
	if w == nil {
		return nil
	}
	for _, n := range w.kept {
		if n.sink == sink {
			n.renew(*w.burst >> 1)
			return n
		}
	}
	n := w.newNote(sink)
	if n != nil {
		w.kept = append(w.kept, n)
		n.renew(*w.burst >> 1)
	}
	return n
}

func (w *Window) newNote(sink string) *Note {
	h := fnv.New64a()
	h.Write([]byte(sink))
	hash := h.Sum64() | 1 // 0 is no note
	for i := range w.notes {
		r := &w.notes[i]
		if r.sink == hash || r.sink == 0 {
			r.sink = hash
			return &Note{noteRecord: r, sink: sink}
		}
	}
	return nil
}

// Note says how far one sink has got with the burst of a window, in messages.
type Note struct {
	*noteRecord
	sink string
	step uint32
}

// renew makes the note one of a burst, of which nothing is done yet.
func (n *Note) renew(burst uint64) {
	if n.burst == burst+1 {
		return
	}
	n.burst = 0
	n.at, n.next = 0, 0
	n.burst = burst + 1
}

// Had is how many of so many messages the sink is done with, which follow on
// others of the burst: it is done with those, or came to the burst after them.
func (n *Note) Had(others, messages int) int {
	if n == nil {
		return 0
	}
	n.Skip(max(others-int(n.at), 0))
	return min(int(n.at)-others, messages)
}

// Step says how many messages the next append will be.
func (n *Note) Step(messages int) {
	if n != nil {
		n.step = uint32(messages)
	}
}

// Skip says that the sink is done with so many messages that it did not append.
func (n *Note) Skip(messages int) {
	if n != nil {
		n.next += uint32(messages)
		n.at = n.next
	}
}

// expect notes an append to a piece, which has been copied there and is about
// to be published in place of before.
func (n *Note) expect(home *segment, piece []byte, before uint64) {
	if n == nil {
		return
	}
	n.page = uint32(home.pageOf(piece))
	n.arena = home.header().id
	n.before = before
	n.next = n.at + n.step // from here on the note is pending
}

// done notes that it was published.
func (n *Note) done() {
	if n != nil {
		n.at = n.next
	}
}
