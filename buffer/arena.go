// Package buffer gathers messages in memory until a batch is worth a system
// call.
//
// All batch memory is one [Arena] of fixed size, handed out in pieces of
// powers of two. Each sink has a [Share] of it and one [Buffer], which keeps
// an open [Batch] for each path and a queue of sealed ones, and accounts for
// every message from Append to Done.
//
// A piece belongs to the one batch that it was taken for: to the Buffer while
// the batch is open or queued, then to whoever got the batch from Next, until
// Done gives it back. When memory runs low, the heaviest open batches are
// sealed early; when there is none left, an append takes nothing, or the lines
// that still had room, and says so. The buffer itself neither waits nor drops:
// the caller waits for Room and tries again, or drops the message and notes it
// with Drop. A message of up to PageSize bytes is always taken while the
// share has that much left; a larger one also needs its piece in one part.
package buffer

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
)

// PageSize is the smallest piece of an arena, in bytes.
const PageSize = 4096

// Arena is the memory of all batches: one region that never grows and never
// moves. Pieces of PageSize<<k bytes come from a buddy allocator, last freed
// first used, so that a lightly loaded daemon touches few pages.
//
// What may be taken is decided by shares: each has a guaranteed part, and
// borrows beyond it from what nobody is guaranteed. So no sink can take
// another's memory.
type Arena struct {
	region
	file   *os.File // nil: the memory ends with the process
	births atomic.Uint64

	mu       sync.Mutex    // guards all that follows
	pages    []page        // one for each PageSize of mem
	free     []int32       // by order: first free piece, or none
	common   int           // bytes guaranteed to nobody and borrowed by nobody; below 0 if more was left behind
	aside    int           // bytes kept for Reserve
	reserved int           // bytes that Reserve gave out
	room     chan struct{} // closed when memory is given back; nil while nobody asked
}

// page describes the piece that begins at this page.
type page struct {
	order      int8 // of the piece, while it is free
	free       bool
	next, prev int32 // in the free list of its order
}

const none = int32(-1)

// NewArena makes an arena of size bytes, rounded down to whole pages. Its
// memory ends with the process.
func NewArena(size int) (*Arena, error) {
	pages, err := pagesOf(size)
	if err != nil {
		return nil, err
	}
	all, err := allocate(regionSize(pages))
	if err != nil {
		return nil, fmt.Errorf("arena of %d bytes: %w", size, err)
	}
	a := newArena(all, pages)
	a.describe(rand.Uint64(), 0)
	return a, nil
}

func pagesOf(size int) (int, error) {
	if size < PageSize || size/PageSize > maxPages {
		return 0, fmt.Errorf("arena of %d bytes: at least %d are needed", size, PageSize)
	}
	return size / PageSize, nil
}

// newArena makes an arena of memory that is all zeros.
func newArena(all []byte, n int) *Arena {
	a := &Arena{region: layOut(all, n), pages: make([]page, n), common: n * PageSize}
	a.free = make([]int32, bits.Len(uint(n)))
	for i := range a.free {
		a.free[i] = none
	}
	// Cut the region into the largest aligned pieces, the last first, so that
	// the low pages are used first.
	for end := n; end > 0; {
		order := bits.TrailingZeros(uint(end))
		a.push(int32(end-1<<order), int8(order))
		end -= 1 << order
	}
	return a
}

// Close gives the memory back to the system. No batch may be in use.
func (a *Arena) Close() error { return release(a.all) }

// Size is the arena's size in bytes.
func (a *Arena) Size() int { return len(a.mem) }

// Room returns a channel that is closed when memory is given back the next
// time. Take the channel first, then try, then wait for it.
func (a *Arena) Room() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.room == nil {
		a.room = make(chan struct{})
	}
	return a.room
}

// SetAside keeps n bytes of the common part for Reserve, out of the reach of
// sinks: less if there is no longer so much. Call it once.
func (a *Arena) SetAside(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aside = min(n, a.common)
	a.common -= a.aside
}

// Reserve takes n bytes for memory that is not in the arena, such as
// half-received frames: of what was set aside, then of the common part. False
// if there is not so much.
func (a *Arena) Reserve(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	more := max(a.reserved+n-a.aside, 0) - max(a.reserved-a.aside, 0)
	if more > max(a.common, 0) {
		return false
	}
	a.common -= more
	a.reserved += n
	return true
}

// Unreserve ends a reservation of n bytes.
func (a *Arena) Unreserve(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.common += max(a.reserved-a.aside, 0) - max(a.reserved-n-a.aside, 0)
	a.reserved -= n
	a.announceRoomLocked()
}

func (a *Arena) announceRoomLocked() {
	if a.room != nil {
		close(a.room)
		a.room = nil
	}
}

// Share is what one sink may take of an arena.
type Share struct {
	arena      *Arena
	guaranteed int // bytes; constant but for Resize
	used       int // guarded by arena.mu
}

// Share sets guaranteed bytes aside for one sink; less if the arena has no
// longer so much to give.
func (a *Arena) Share(guaranteed int) *Share {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &Share{arena: a, guaranteed: max(min(guaranteed, a.common), 0)}
	a.common -= s.guaranteed
	return s
}

// Close gives back what is guaranteed. Nothing may be in use.
func (s *Share) Close() { s.Resize(0) }

// Resize changes what is guaranteed. What is in use beyond it becomes
// borrowed.
func (s *Share) Resize(guaranteed int) {
	a := s.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	a.common += s.guaranteed + s.borrowedLocked()
	s.guaranteed = max(min(guaranteed, a.common), 0)
	a.common -= s.guaranteed + s.borrowedLocked()
	a.announceRoomLocked()
}

func (s *Share) borrowedLocked() int { return max(s.used-s.guaranteed, 0) }

// take hands out a piece of at least n bytes, with length 0 and its size as
// capacity; nil if the share or the arena has none.
func (s *Share) take(n int) []byte {
	order := orderOf(n)
	size := PageSize << order
	a := s.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	borrow := max(s.used+size-s.guaranteed, 0) - s.borrowedLocked()
	if borrow > max(a.common, 0) {
		return nil
	}
	at := a.pop(order)
	if at == none {
		return nil
	}
	a.common -= borrow
	s.used += size
	offset := int(at) * PageSize
	return a.mem[offset : offset : offset+size]
}

// entryOf is the entry of a piece from take.
func (s *Share) entryOf(piece []byte) *descriptor {
	return &s.arena.table[s.arena.pageOf(piece)]
}

// give takes a piece back, whose entry is free.
func (s *Share) give(piece []byte) {
	piece = piece[:cap(piece)]
	poison(piece)
	a := s.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	back := s.borrowedLocked()
	s.used -= len(piece)
	a.common += back - s.borrowedLocked()
	a.merge(a.pageOf(piece), int8(orderOf(len(piece))))
	a.announceRoomLocked()
}

// balance tells how many bytes the share can still take, and how many it has.
func (s *Share) balance() (left, used int) {
	s.arena.mu.Lock()
	defer s.arena.mu.Unlock()
	return max(s.guaranteed-s.used, 0) + max(s.arena.common, 0), s.used
}

// orderOf is the order of the smallest piece that holds n bytes.
func orderOf(n int) int {
	if n <= PageSize {
		return 0
	}
	return bits.Len(uint(n-1) / PageSize)
}

// The buddy allocator: a free piece of order k begins at a multiple of 1<<k
// pages, and its buddy is the other half of the piece of order k+1.

func (a *Arena) pop(order int) int32 {
	from := order
	for from < len(a.free) && a.free[from] == none {
		from++
	}
	if from >= len(a.free) {
		return none
	}
	at := a.free[from]
	a.unlink(at)
	for from > order {
		from--
		a.push(at+1<<from, int8(from))
	}
	return at
}

func (a *Arena) merge(at int32, order int8) {
	for int(order) < len(a.free)-1 {
		buddy := at ^ 1<<order
		if int(buddy)+1<<order > len(a.pages) || !a.pages[buddy].free || a.pages[buddy].order != order {
			break
		}
		a.unlink(buddy)
		at = min(at, buddy)
		order++
	}
	a.push(at, order)
}

func (a *Arena) push(at int32, order int8) {
	head := a.free[order]
	a.pages[at] = page{order: order, free: true, next: head, prev: none}
	if head != none {
		a.pages[head].prev = at
	}
	a.free[order] = at
}

func (a *Arena) unlink(at int32) {
	p := a.pages[at]
	if p.prev == none {
		a.free[p.order] = p.next
	} else {
		a.pages[p.prev].next = p.next
	}
	if p.next != none {
		a.pages[p.next].prev = p.prev
	}
	a.pages[at].free = false
}
