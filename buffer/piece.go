package buffer

import (
	"hash/crc32"
	"sync/atomic"
	"unsafe"
)

// descriptor is what the table of an arena says of the piece that begins at its
// page, for whoever finds the arena after a kill. It belongs to the holder of
// the piece. How the stores below follow each other is what makes a kill
// between any two of them harmless; see docs/how-it-works.md.
//
// Numbers are in the machine's byte order: an arena never leaves it.
type descriptor struct {
	state   uint32 // atomic; one of the states below
	sum     uint32 // CRC-32C of what does not change: see check
	order   uint8  // of the piece: it has PageSize<<order bytes
	kind    kind
	sinkLen uint16 // bytes of names
	keyLen  uint32

	supersedes  uint32 // this page's piece, plus 1, is an older copy of this one; 0: none
	dropped     uint32
	fingerprint uint64 // of the Spec; of a window, how many pages it has
	birth       uint64 // counts what was opened in an arena
	first, last int64  // receive times, Unix ns
	published   uint64 // atomic; bytes<<32 | messages
	arena       uint64 // with sequence: of a batch that is sealed
	sequence    uint64
	place       Place // of a batch that is being written; of a window, what it replaces

	// names are the sink's name and the key. Where they are longer, they are
	// the end of the piece.
	names [144]byte
}

// entrySize is the size of an entry, exactly.
const entrySize = 256

var _ [entrySize]byte = [unsafe.Sizeof(descriptor{})]byte{}

// kind is what a piece is for.
type kind uint8

const (
	batchPiece kind = iota + 1
	windowPiece
)

// The states of a piece.
const (
	stateFree uint32 = iota
	stateOpen
	stateSealed
	stateWriting
)

// Place is where in a file a batch is about to be written.
type Place struct {
	Device, Inode  uint64
	Offset, Length int64 // bytes
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// begin describes a new piece and makes it one that a replay takes up.
func (e *descriptor) begin(piece []byte, k kind, fingerprint, birth uint64, first int64, sink, key string) {
	e.supersedes, e.dropped = 0, 0
	if k == batchPiece {
		e.place = Place{}
	}
	e.arena, e.sequence = 0, 0
	e.order, e.kind = uint8(orderOf(cap(piece))), k
	e.fingerprint, e.birth, e.first, e.last = fingerprint, birth, first, first
	e.sinkLen, e.keyLen = uint16(len(sink)), uint32(len(key))
	names := e.namesIn(piece[:cap(piece)])
	copy(names, sink)
	copy(names[len(sink):], key)
	e.sum = e.check(piece[:cap(piece)])
	e.published = 0
	atomic.StoreUint32(&e.state, stateOpen)
}

// succeed makes e, which is free, the copy of an older piece in a larger one.
// The text has been copied. From the one store of the state on a replay takes
// e, and then not the older.
func (e *descriptor) succeed(piece []byte, old *descriptor, oldPiece []byte, oldPage int32) {
	copied := *old
	copied.state, copied.supersedes = stateFree, uint32(oldPage)+1
	*e = copied
	e.order = uint8(orderOf(cap(piece)))
	copy(e.namesIn(piece[:cap(piece)]), old.namesIn(oldPiece[:cap(oldPiece)]))
	e.sum = e.check(piece[:cap(piece)])
	atomic.StoreUint32(&e.state, old.state)
	Step("grow")
	old.free()
	e.supersedes = 0 // before the old piece becomes anything else
}

// replacedWindow names a window that another takes the place of: its arena, and
// its page plus 1; 0: none. The entry of a window has them where that of a
// batch has its place.
type replacedWindow struct{ arena, page uint64 }

func (e *descriptor) setReplaced(r [2]replacedWindow) {
	e.place = Place{r[0].arena, r[0].page, int64(r[1].arena), int64(r[1].page)}
}

func (e *descriptor) replaced() [2]replacedWindow {
	p := e.place
	return [2]replacedWindow{{p.Device, p.Inode}, {uint64(p.Offset), uint64(p.Length)}}
}

// publish says how much of the piece is whole.
func (e *descriptor) publish(content uint64, last int64) {
	e.last = last
	store(&e.published, content)
}

// content is how much of a piece is whole, in one word.
func content(bytes, messages int) uint64 { return uint64(bytes)<<32 | uint64(uint32(messages)) }

// store comes after all that was stored before it, and before all that is
// stored afterwards, for whoever finds the memory after a kill: a process ends
// between two instructions, so it is only the compiler that could change the
// order, and it moves nothing over a call. An atomic store would wait for the
// cache misses of the copy besides, once a message.
//
//go:noinline
func store(word *uint64, value uint64) { *word = value }

// seal says that nothing will be added.
func (e *descriptor) seal(arena, sequence uint64, dropped int) {
	e.arena, e.sequence, e.dropped = arena, sequence, uint32(dropped)
	atomic.StoreUint32(&e.state, stateSealed)
}

// intend notes where the batch is about to be written. An older note is taken
// back first, or else a kill could leave a mixture of both.
func (e *descriptor) intend(p Place) {
	atomic.StoreUint32(&e.state, stateSealed)
	e.place = p
	atomic.StoreUint32(&e.state, stateWriting)
}

// pages is how many pages the piece has: of a window perhaps less than its order
// says.
func (e *descriptor) pages() int {
	if e.kind == windowPiece {
		return int(e.fingerprint)
	}
	return 1 << e.order
}

// free says that nothing of the piece is wanted any more.
func (e *descriptor) free() { atomic.StoreUint32(&e.state, stateFree) }

// content is how much of the piece is whole.
func (e *descriptor) content() (bytes, messages int) {
	word := atomic.LoadUint64(&e.published)
	return int(word >> 32), int(uint32(word))
}

// namesIn is where the names are: in the entry, or at the end of the piece.
func (e *descriptor) namesIn(piece []byte) []byte {
	n := int(e.sinkLen) + int(e.keyLen)
	if n <= len(e.names) {
		return e.names[:n]
	}
	return piece[len(piece)-n:]
}

// check is the checksum of what does not change in the life of a piece.
func (e *descriptor) check(piece []byte) uint32 {
	head := (*[entrySize]byte)(unsafe.Pointer(e))
	const from, to = unsafe.Offsetof(descriptor{}.order), unsafe.Offsetof(descriptor{}.supersedes)
	const from2, to2 = unsafe.Offsetof(descriptor{}.fingerprint), unsafe.Offsetof(descriptor{}.last)
	sum := crc32.Update(0, castagnoli, head[from:to])
	sum = crc32.Update(sum, castagnoli, head[from2:to2])
	return crc32.Update(sum, castagnoli, e.namesIn(piece))
}

// nameRoom is how many bytes of a piece the names take.
func nameRoom(sink, key string) int {
	n := len(sink) + len(key)
	if n <= len(descriptor{}.names) {
		return 0
	}
	return n
}
