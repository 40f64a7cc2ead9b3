package buffer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNewArena(t *testing.T) {
	for _, tt := range []struct {
		size int
		free map[int32]int8 // nil: an error
	}{
		{size: -1},
		{size: 0},
		{size: PageSize - 1},
		{size: PageSize, free: map[int32]int8{0: 0}},
		{size: 2*PageSize - 1, free: map[int32]int8{0: 0}},
		{size: 2 * PageSize, free: map[int32]int8{0: 1}},
		{size: 3 * PageSize, free: map[int32]int8{0: 1, 2: 0}},
		{size: 7 * PageSize, free: map[int32]int8{0: 2, 4: 1, 6: 0}},
		{size: 8 * PageSize, free: map[int32]int8{0: 3}},
		{size: 100 * PageSize, free: map[int32]int8{0: 6, 64: 5, 96: 2}},
	} {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			a, err := NewArena(tt.size)
			if tt.free == nil {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if got := freePieces(a); !maps.Equal(got, tt.free) {
				t.Errorf("free pieces %v, want %v", got, tt.free)
			}
			if want := tt.size / PageSize * PageSize; a.Size() != want {
				t.Errorf("size %d, want %d", a.Size(), want)
			}
		})
	}
}

func TestOrderOf(t *testing.T) {
	for n, want := range map[int]int{
		0: 0, 1: 0, PageSize: 0, PageSize + 1: 1, 2 * PageSize: 1, 2*PageSize + 1: 2,
		3 * PageSize: 2, 4 * PageSize: 2, 4*PageSize + 1: 3, 256 << 10: 6, 256<<10 + 1: 7,
	} {
		if got := orderOf(n); got != want {
			t.Errorf("order of %d bytes: %d, want %d", n, got, want)
		}
	}
}

// arenaModel is an arena, and what the test knows to be taken of it.
type arenaModel struct {
	arena    *Arena
	shares   []*Share
	pieces   [][][]byte // by share
	owner    []int      // by page: share and piece, or 0
	ids      int
	aside    int // bytes for reservations alone
	reserved int
}

func TestArenaModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newArenaModel(t)
		defer m.arena.Close()
		first := freePieces(m.arena)
		t.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"take":      m.take,
			"fill":      m.fill,
			"give":      m.give,
			"reserve":   m.reserve,
			"unreserve": m.unreserve,
			"resize":    m.resize,
		})
		for i := range m.shares {
			for len(m.pieces[i]) > 0 {
				m.giveBack(t, i, 0)
			}
			m.shares[i].Close()
		}
		m.arena.Unreserve(m.reserved)
		if got := freePieces(m.arena); !maps.Equal(got, first) {
			t.Fatalf("all was given back, but free pieces are %v, not %v", got, first)
		}
		if m.arena.common+m.aside != m.arena.Size() {
			t.Fatalf("all was given back, but %d of %d bytes are common", m.arena.common, m.arena.Size())
		}
	})
}

func newArenaModel(t *rapid.T) *arenaModel {
	pages := rapid.OneOf(rapid.SampledFrom([]int{1, 2, 3, 64}), rapid.IntRange(1, 100)).Draw(t, "pages")
	a, err := NewArena(pages * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	m := &arenaModel{arena: a, owner: make([]int, pages)}
	m.aside = min(m.drawSize(t, "aside"), a.Size())
	a.SetAside(m.aside)
	for range rapid.IntRange(1, 4).Draw(t, "shares") {
		m.shares = append(m.shares, a.Share(m.drawSize(t, "guaranteed")))
	}
	m.pieces = make([][][]byte, len(m.shares))
	return m
}

// drawSize is a number of bytes: whole pages, or not, or more than there is.
func (m *arenaModel) drawSize(t *rapid.T, label string) int {
	size := m.arena.Size()
	return rapid.OneOf(
		rapid.Map(rapid.IntRange(0, size/PageSize), func(n int) int { return n * PageSize }),
		rapid.IntRange(0, size+PageSize),
	).Draw(t, label)
}

func (m *arenaModel) drawShare(t *rapid.T) int {
	return rapid.IntRange(0, len(m.shares)-1).Draw(t, "share")
}

func (m *arenaModel) take(t *rapid.T) {
	i := m.drawShare(t)
	m.takeFor(t, i, rapid.OneOf(rapid.IntRange(1, 2*PageSize), rapid.IntRange(1, 2*m.arena.Size())).Draw(t, "bytes"))
}

// fill takes all pages that a share can have, and gives some of them back:
// that leaves holes.
func (m *arenaModel) fill(t *rapid.T) {
	i, every := m.drawShare(t), rapid.IntRange(2, 5).Draw(t, "every")
	for m.takeFor(t, i, PageSize) {
	}
	for at := len(m.pieces[i]) - 1; at >= 0; at -= every {
		m.giveBack(t, i, at)
	}
}

// takeFor takes n bytes for a share, and reports whether it got them.
func (m *arenaModel) takeFor(t *rapid.T, i, n int) bool {
	s := m.shares[i]
	left, _ := s.balance()
	able := left >= PageSize<<orderOf(n) && m.hasRun(1<<orderOf(n))
	piece, _ := s.take(n)
	if piece == nil {
		if able {
			t.Fatalf("%d bytes refused, but %d bytes are left and a piece is free", n, left)
		}
		return false
	}
	if !able {
		t.Fatalf("got %d bytes, though %d are left", n, left)
	}
	if len(piece) != 0 || cap(piece) != PageSize<<orderOf(n) {
		t.Fatalf("for %d bytes: length %d, capacity %d", n, len(piece), cap(piece))
	}
	m.ids++
	m.own(t, piece, 0, m.ids)
	m.pieces[i] = append(m.pieces[i], piece)
	return true
}

// hasRun says whether so many free pages begin at a multiple of their number.
func (m *arenaModel) hasRun(pages int) bool {
	for at := 0; at+pages <= len(m.owner); at += pages {
		free := true
		for _, id := range m.owner[at : at+pages] {
			free = free && id == 0
		}
		if free {
			return true
		}
	}
	return false
}

// own changes the owner of all pages of a piece.
func (m *arenaModel) own(t *rapid.T, piece []byte, from, to int) {
	at := int(m.arena.current.pageOf(piece[:1]))
	for i := range cap(piece) / PageSize {
		if from == 0 && m.owner[at+i] != 0 {
			t.Fatalf("page %d belongs to two pieces", at+i)
		}
		m.owner[at+i] = to
	}
}

func (m *arenaModel) give(t *rapid.T) {
	i := m.drawShare(t)
	if len(m.pieces[i]) == 0 {
		t.Skip("nothing taken")
	}
	m.giveBack(t, i, rapid.IntRange(0, len(m.pieces[i])-1).Draw(t, "piece"))
}

func (m *arenaModel) giveBack(t *rapid.T, share, piece int) {
	room := m.arena.Room()
	p := m.pieces[share][piece]
	m.own(t, p, -1, 0)
	m.shares[share].give(p, m.arena.current)
	m.pieces[share] = append(m.pieces[share][:piece], m.pieces[share][piece+1:]...)
	if !isClosed(room) {
		t.Fatal("memory was given back, and Room says nothing")
	}
}

func (m *arenaModel) reserve(t *rapid.T) {
	n := m.drawSize(t, "bytes")
	left := m.arena.common + max(m.aside-m.reserved, 0)
	if m.arena.Reserve(n) != (n <= left) {
		t.Fatalf("reserve %d of %d bytes: %v", n, left, n > left)
	}
	if n <= left {
		m.reserved += n
	}
}

func (m *arenaModel) unreserve(t *rapid.T) {
	n := rapid.IntRange(0, m.reserved).Draw(t, "bytes")
	m.arena.Unreserve(n)
	m.reserved -= n
}

func (m *arenaModel) resize(t *rapid.T) {
	s := m.shares[m.drawShare(t)]
	n := m.drawSize(t, "guaranteed")
	most := m.arena.common + max(s.guaranteed, s.used)
	s.Resize(n)
	if s.guaranteed != min(n, most) {
		t.Fatalf("%d bytes guaranteed, want %d of at most %d", s.guaranteed, n, most)
	}
}

// check holds the books against the pages.
func (m *arenaModel) check(t *rapid.T) {
	sum := m.arena.common + max(m.reserved, m.aside)
	promised := sum
	for i, s := range m.shares {
		used := 0
		for _, piece := range m.pieces[i] {
			used += cap(piece)
		}
		if s.used != used {
			t.Fatalf("share %d uses %d bytes, says %d", i, used, s.used)
		}
		sum += s.guaranteed + s.borrowedLocked()
		promised += max(s.guaranteed-s.used, 0)
	}
	if m.arena.common < 0 || sum != m.arena.Size() {
		t.Fatalf("common %d, all together %d of %d bytes", m.arena.common, sum, m.arena.Size())
	}
	free := 0
	for at, order := range freePieces(m.arena) {
		if at%(1<<order) != 0 {
			t.Fatalf("a free piece of order %d begins at page %d", order, at)
		}
		for page := at; page < at+1<<order; page++ {
			if m.owner[page] != 0 {
				t.Fatalf("page %d is free and taken", page)
			}
		}
		free += PageSize << order
	}
	taken := 0
	for _, id := range m.owner {
		if id != 0 {
			taken += PageSize
		}
	}
	if free+taken != m.arena.Size() {
		t.Fatalf("%d bytes free and %d taken of %d", free, taken, m.arena.Size())
	}
	if free < promised {
		t.Fatalf("%d bytes are promised, %d are free", promised, free)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A sink that takes all it can leaves another its guaranteed part, and the
// reservation of half-received frames cannot take it either.
func TestShareIsKept(t *testing.T) {
	a, err := NewArena(16 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	greedy, modest := a.Share(0), a.Share(4*PageSize)
	taken := 0
	for take(greedy, 1) != nil {
		taken++
	}
	if taken != 12 {
		t.Errorf("greedy took %d pages, want 12", taken)
	}
	if a.Reserve(1) {
		t.Error("reserved what is guaranteed")
	}
	for i := range 4 {
		if take(modest, PageSize) == nil {
			t.Fatalf("page %d of 4 guaranteed ones refused", i)
		}
	}
	if take(modest, 1) != nil {
		t.Error("more than there is")
	}
	if third := a.Share(PageSize); third.guaranteed != 0 {
		t.Error("guaranteed what is in use")
	}
}

func TestRoom(t *testing.T) {
	a, err := NewArena(4 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := a.Share(PageSize)
	var piece []byte
	for _, tt := range []struct {
		name string
		do   func()
		room bool
	}{
		{"take", func() { piece = take(s, 1) }, false},
		{"give", func() { s.give(piece, s.arena.current) }, true},
		{"reserve", func() { a.Reserve(PageSize) }, false},
		{"unreserve", func() { a.Unreserve(PageSize) }, true},
		{"resize", func() { s.Resize(0) }, true},
		{"close", s.Close, true},
	} {
		before := a.Room()
		if a.Room() != before {
			t.Errorf("%s: two waiters have different channels", tt.name)
		}
		tt.do()
		if isClosed(before) != tt.room {
			t.Errorf("%s: closed %v, want %v", tt.name, !tt.room, tt.room)
		}
		if isClosed(a.Room()) {
			t.Errorf("%s: the next channel is closed at once", tt.name)
		}
	}
}

// A renewed arena gives pieces of its new segment; the one before goes with the
// last that is out of it. What is open there does not grow into the new one.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	a, err := CreateArena(dir, 64*PageSize, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	b := New("sink", a.Share(a.Size()/2), Limits{100, 16 * PageSize, time.Hour})
	mustAdd(t, b, "/a", "old")
	w := a.NewWindow("source", "", 1)
	files := func() int {
		left, err := LeftIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	settle, err := a.Renew(256 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	settle(true)
	if a.Size() != 256*PageSize || files() != 2 || !w.IsOld() {
		t.Errorf("%d bytes, %d files, the window is old: %v", a.Size(), files(), w.IsOld())
	}
	mustAdd(t, b, "/a", strings.Repeat("x", PageSize))
	all := sealed(b)
	if got := texts(all); !slices.Equal(got, []string{"old\n"}) {
		t.Errorf("%q is sealed, want what does not fit the old piece to begin another", got)
	}
	b.Seal(ByReopen)
	for _, bt := range append(all, sealed(b)...) {
		if files() != 2 {
			t.Error("the first file is gone while its window is in use")
		}
		b.Done(bt, 0, "")
	}
	next := w.Resize(1)
	next.Replace(w)
	if files() != 1 || next.IsOld() {
		t.Errorf("%d files, want one when nothing is left of the first", files())
	}
	if settle, err = a.Renew(PageSize); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, b, "/b", "in what is not kept")
	settle(false)
	if a.Size() != 256*PageSize || files() != 2 {
		t.Errorf("%d bytes, %d files", a.Size(), files())
	}
	b.Seal(ByReopen)
	deliver(b)
	next.Close()
	b.share.Close()
	if files() != 1 || a.common != a.Size() {
		t.Errorf("%d files, %d of %d bytes are common", files(), a.common, a.Size())
	}
	if _, err := a.Renew(1 << 50); err == nil || files() != 1 {
		t.Errorf("%v, %d files", err, files())
	}
	if err := a.Remove(); err != nil {
		t.Error(err)
	}
}

// Windows have as many pages as they need, and what is beside them is taken
// and given back as ever. After a kill each is found with its size.
func TestWindowPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := NewArena(rapid.IntRange(64, 300).Draw(t, "pages") * PageSize)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		first := freePieces(a)
		s := a.Share(0)
		var windows []*Window
		var pieces [][]byte
		for range rapid.IntRange(1, 12).Draw(t, "takes") {
			if n := rapid.IntRange(1, 90*PageSize).Draw(t, "bytes"); rapid.Bool().Draw(t, "window") {
				if w := a.NewWindow("source", "", n); w != nil {
					windows = append(windows, w)
					if got := len(w.Memory()) / PageSize; got != max((n+PageSize-1)/PageSize, minWindow) {
						t.Fatalf("%d pages for %d bytes", got, n)
					}
					w.Begin()
				}
			} else if piece := take(s, n); piece != nil {
				pieces = append(pieces, piece)
			}
			if len(windows) > 0 && rapid.IntRange(0, 3).Draw(t, "close") == 0 {
				windows[0].Close()
				windows = windows[1:]
			}
		}
		taken := make(map[int32]bool)
		for _, w := range windows {
			pieces = append(pieces, w.piece[:0])
		}
		for _, piece := range pieces {
			for i := range cap(piece) / PageSize {
				page := a.current.pageOf(piece) + int32(i)
				if taken[page] {
					t.Fatalf("page %d is taken twice", page)
				}
				taken[page] = true
			}
		}
		free := 0
		for _, order := range freePieces(a) {
			free += 1 << order
		}
		if free+len(taken) != len(a.current.pages) {
			t.Fatalf("%d pages free and %d taken of %d", free, len(taken), len(a.current.pages))
		}
		l := &Left{region: a.current.region}
		if _, found := l.Find(); len(found) != len(windows) || l.Damaged > 0 {
			t.Fatalf("%d windows are found of %d, %d damaged", len(found), len(windows), l.Damaged)
		}
		for _, w := range windows {
			w.Close()
		}
		for _, piece := range pieces[:len(pieces)-len(windows)] {
			s.give(piece, a.current)
		}
		if got := freePieces(a); !maps.Equal(got, first) {
			t.Fatalf("free pieces %v, not %v", got, first)
		}
	})
}
