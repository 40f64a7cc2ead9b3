package buffer

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newBuffer is a buffer with an arena of its own, all of it guaranteed.
func newBuffer(t testing.TB, pages int, limits Limits) *Buffer {
	t.Helper()
	a, err := NewArena(pages * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return New("sink", a.Share(a.Size()), limits)
}

// add appends one line, received now, and reports whether it was taken.
func add(b *Buffer, key, text string) bool {
	b.Begin()
	defer b.End()
	return b.Append([]byte(key), []byte(text), true, time.Now())
}

// mustAdd is add where there must be memory.
func mustAdd(t testing.TB, b *Buffer, key, text string) {
	t.Helper()
	if !add(b, key, text) {
		t.Fatalf("no memory for %d bytes", len(text))
	}
}

// sealed takes all sealed batches out of the buffer.
func sealed(b *Buffer) []*Batch {
	var all []*Batch
	for bt, _ := b.Next(); bt != nil; bt, _ = b.Next() {
		all = append(all, bt)
	}
	return all
}

// texts are the contents of batches.
func texts(batches []*Batch) []string {
	var all []string
	for _, bt := range batches {
		all = append(all, string(bt.Bytes()))
	}
	return all
}

// deliver ends all sealed batches as delivered.
func deliver(b *Buffer) {
	for _, bt := range sealed(b) {
		b.Done(bt, 0, "")
	}
}

// freePieces are the free pieces of an arena, by first page, with their
// orders.
func freePieces(a *Arena) map[int32]int8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	pieces := make(map[int32]int8)
	for order, at := range a.current.free {
		for ; at != none; at = a.current.pages[at].next {
			pieces[at] = int8(order)
		}
	}
	return pieces
}

// take takes a piece of a share whose arena has one segment.
func take(s *Share, n int) []byte {
	piece, _ := s.take(n)
	return piece
}

// fits says whether the share and the arena have a piece of at least n bytes.
func fits(s *Share, n int) bool {
	if left, _ := s.balance(); left < PageSize<<orderOf(n) {
		return false
	}
	for _, order := range freePieces(s.arena) {
		if int(order) >= orderOf(n) {
			return true
		}
	}
	return false
}
