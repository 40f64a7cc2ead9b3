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
	"slices"
	"sync"
	"sync/atomic"
)

// PageSize is the smallest piece of an arena, in bytes.
const PageSize = 4096

// Arena is the memory of all batches. What may be taken of it is decided by
// shares: each has a guaranteed part, and borrows beyond it from what nobody is
// guaranteed. So no sink can take another's memory.
//
// The memory is one segment, which never grows and never moves. Renew begins
// another one, and the one before goes when the last piece of it is given back.
type Arena struct {
	births atomic.Uint64

	mu       sync.Mutex    // guards all that follows, and the segments
	current  *segment      // that pieces are taken from
	old      []*segment    // that pieces are still out of
	common   int           // bytes guaranteed to nobody and borrowed by nobody; below 0 if more was left behind
	aside    int           // bytes kept for Reserve
	reserved int           // bytes that Reserve gave out
	room     chan struct{} // closed when memory is given back; nil while nobody asked
}

// NewArena makes an arena of size bytes, rounded down to whole pages. Its
// memory ends with the process.
func NewArena(size int) (*Arena, error) {
	s, err := allocateSegment(size, 0)
	if err != nil {
		return nil, err
	}
	return newArena(s), nil
}

func newArena(s *segment) *Arena { return &Arena{current: s, common: len(s.mem)} }

// Close gives the memory back to the system. No batch may be in use.
func (a *Arena) Close() error { return release(a.current.all) }

// Renew takes pieces from another segment of size bytes from now on: from a new
// file beside the first, if that is one. It ends with settle, once; false goes
// back to the segment before. What is guaranteed and set aside is for the
// caller to change.
func (a *Arena) Renew(size int) (settle func(keep bool), err error) {
	before := a.segment()
	next, err := before.another(size)
	if err != nil {
		return nil, err
	}
	a.use(next)
	return func(keep bool) {
		if keep {
			a.drop(before)
		} else {
			a.use(before)
			a.drop(next)
		}
	}, nil
}

func (a *Arena) segment() *segment {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

func (a *Arena) use(s *segment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.common += len(s.mem) - len(a.current.mem)
	a.old = append(slices.DeleteFunc(a.old, func(old *segment) bool { return old == s }), a.current)
	a.current = s
	a.announceRoomLocked()
}

// drop ends a hold of a segment. With the last it goes.
func (a *Arena) drop(s *segment) {
	a.mu.Lock()
	last := a.dropLocked(s)
	a.mu.Unlock()
	if last {
		s.end()
	}
}

func (a *Arena) dropLocked(s *segment) (last bool) {
	s.holds--
	if s.holds > 0 {
		return false
	}
	a.old = slices.DeleteFunc(a.old, func(old *segment) bool { return old == s })
	return true
}

// Size is the arena's size in bytes.
func (a *Arena) Size() int { return len(a.segment().mem) }

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
// sinks: less if there is no longer so much.
func (a *Arena) SetAside(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.common += max(a.reserved, a.aside)
	a.aside = max(min(n, a.common), 0)
	a.common -= max(a.reserved, a.aside)
	a.announceRoomLocked()
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
// capacity, and the segment that it lies in; nil if the share or the arena has
// none.
func (s *Share) take(n int) ([]byte, *segment) {
	order := orderOf(n)
	size := PageSize << order
	a := s.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	borrow := max(s.used+size-s.guaranteed, 0) - s.borrowedLocked()
	if borrow > max(a.common, 0) {
		return nil, nil
	}
	at := a.current.pop(order)
	if at == none {
		return nil, nil
	}
	a.common -= borrow
	s.used += size
	return a.current.piece(int(at), uint8(order))[:0], a.current
}

// give takes a piece back, whose entry is free.
func (s *Share) give(piece []byte, home *segment) {
	piece = piece[:cap(piece)]
	poison(piece)
	a := s.arena
	a.mu.Lock()
	back := s.borrowedLocked()
	s.used -= len(piece)
	a.common += back - s.borrowedLocked()
	home.merge(home.pageOf(piece), int8(orderOf(len(piece))))
	a.announceRoomLocked()
	last := a.dropLocked(home)
	a.mu.Unlock()
	if last {
		home.end()
	}
}

// balance tells how many bytes the share can still take, and how many it has.
func (s *Share) balance() (left, used int) {
	s.arena.mu.Lock()
	defer s.arena.mu.Unlock()
	return max(s.guaranteed-s.used, 0) + max(s.arena.common, 0), s.used
}
