package buffer

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// segment is a region with its file, and knows what is free of it. Pieces of
// PageSize<<k bytes come from a buddy allocator, last freed first used, so that
// a lightly loaded daemon touches few pages. Its arena's lock guards it.
type segment struct {
	region
	file  *os.File // nil: the memory ends with the process
	holds int      // pieces that are out, and one while new ones are taken from it
	pages []page   // one for each PageSize of mem
	free  []int32  // by order: first free piece, or none
}

// page describes the piece that begins at this page.
type page struct {
	order      int8 // of the piece, while it is free
	free       bool
	next, prev int32 // in the free list of its order
}

const none = int32(-1)

// newSegment makes a segment of n pages in memory that is all zeros.
func newSegment(all []byte, n int, file *os.File, id, generation uint64) *segment {
	s := &segment{region: layOut(all, n), file: file, holds: 1, pages: make([]page, n)}
	s.describe(id, generation)
	s.free = make([]int32, bits.Len(uint(n)))
	for i := range s.free {
		s.free[i] = none
	}
	// Cut the region into the largest aligned pieces, the last first, so that
	// the low pages are used first.
	for end := n; end > 0; {
		order := bits.TrailingZeros(uint(end))
		s.push(int32(end-1<<order), int8(order))
		end -= 1 << order
	}
	return s
}

// allocateSegment makes one whose memory ends with the process.
func allocateSegment(size int, generation uint64) (*segment, error) {
	n, err := pagesOf(size)
	if err != nil {
		return nil, err
	}
	all, err := allocate(regionSize(n))
	if err != nil {
		return nil, fmt.Errorf("arena of %d bytes: %w", size, err)
	}
	return newSegment(all, n, nil, rand.Uint64(), generation), nil
}

func pagesOf(size int) (int, error) {
	if size < PageSize || size/PageSize > maxPages {
		return 0, fmt.Errorf("arena of %d bytes: at least %d are needed", size, PageSize)
	}
	return size / PageSize, nil
}

// another makes one of the same kind and process.
func (s *segment) another(size int) (*segment, error) {
	if s.file == nil {
		return allocateSegment(size, s.header().generation)
	}
	return createSegment(filepath.Dir(s.file.Name()), size, s.header().generation)
}

// end gives the memory back to the system, and removes the file: nothing is in
// it. What fails is found by the next start, and has nothing for it.
func (s *segment) end() {
	s.remove()
	release(s.all)
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

func (s *segment) pop(order int) int32 {
	from := order
	for from < len(s.free) && s.free[from] == none {
		from++
	}
	if from >= len(s.free) {
		return none
	}
	s.holds++
	at := s.free[from]
	s.unlink(at)
	for from > order {
		from--
		s.push(at+1<<from, int8(from))
	}
	return at
}

// popPages is pop of any number of pages: the rest of the piece stays free.
func (s *segment) popPages(n int) int32 {
	order := orderOf(n * PageSize)
	at := s.pop(order)
	if at != none {
		s.mergeRange(at, n, 1<<order)
	}
	return at
}

func (s *segment) mergePages(at int32, n int) { s.mergeRange(at, 0, n) }

// mergeRange gives back the pages from one to another of a piece at a page, in
// the largest pieces that they make.
func (s *segment) mergeRange(at int32, from, to int) {
	for from < to {
		order := bits.Len(uint(to-from)) - 1
		if from > 0 {
			order = min(order, bits.TrailingZeros(uint(from)))
		}
		s.merge(at+int32(from), int8(order))
		from += 1 << order
	}
}

func (s *segment) merge(at int32, order int8) {
	for int(order) < len(s.free)-1 {
		buddy := at ^ 1<<order
		if int(buddy)+1<<order > len(s.pages) || !s.pages[buddy].free || s.pages[buddy].order != order {
			break
		}
		s.unlink(buddy)
		at = min(at, buddy)
		order++
	}
	s.push(at, order)
}

func (s *segment) push(at int32, order int8) {
	head := s.free[order]
	s.pages[at] = page{order: order, free: true, next: head, prev: none}
	if head != none {
		s.pages[head].prev = at
	}
	s.free[order] = at
}

func (s *segment) unlink(at int32) {
	p := s.pages[at]
	if p.prev == none {
		s.free[p.order] = p.next
	} else {
		s.pages[p.prev].next = p.next
	}
	if p.next != none {
		s.pages[p.next].prev = p.prev
	}
	s.pages[at].free = false
}
