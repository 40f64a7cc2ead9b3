package buffer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// open appends one message of so many bytes to a batch of its own, received
// so long ago, and reports whether it was taken.
func open(b *Buffer, key string, bytes int, age time.Duration) bool {
	b.Begin()
	defer b.End()
	return b.Append([]byte(key), make([]byte, bytes), false, time.Now().Add(-age))
}

// pressed takes all sealed batches out and returns the keys of those that
// ended by pressure.
func pressed(b *Buffer) (keys []string, all []*Batch) {
	all = sealed(b)
	for _, bt := range all {
		if bt.Cause == ByPressure {
			keys = append(keys, bt.Key)
		}
	}
	return keys, all
}

// When memory runs low, the batches with the most bytes for the longest time
// end, until half of the text is on its way.
func TestHeaviestFirst(t *testing.T) {
	type batch struct {
		key   string
		bytes int
		age   time.Duration
	}
	var lines []batch // each has a page
	for i := range 21 {
		lines = append(lines, batch{fmt.Sprint("line", i), 20, 9 * time.Second})
	}
	const page = PageSize
	for _, tt := range []struct {
		name   string
		open   []batch // over three quarters of the memory
		sealed []string
	}{
		{"bytes", []batch{{"small", 2 * page, 0}, {"middle", 8 * page, 0}, {"large", 16 * page, 0}}, []string{"large"}},
		{"age", []batch{{"new", 8 * page, 0}, {"older", 8 * page, 2 * time.Second}, {"old", 8 * page, time.Second}, {"line", 10, 9 * time.Second}}, []string{"older", "old"}},
		{"bytes and age", []batch{{"new", 8 * page, 0}, {"half", 8 * page, 500 * time.Millisecond}, {"old", 8 * page, time.Second}, {"small", 4 * page, 3 * time.Second}}, []string{"small", "old", "half"}},
		{"not the many lines, however old", append([]batch{{"new", 4 * page, 0}}, lines...), []string{"new"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBuffer(t, 32, Limits{1 << 20, 17 * page, 10 * time.Second})
				for _, o := range tt.open {
					if !open(b, o.key, o.bytes, o.age) {
						t.Fatal("no memory")
					}
				}
				if len(b.queue) > 0 {
					t.Fatal("sealed too early")
				}
				mustAdd(t, b, "next", "line")
				if got, _ := pressed(b); !slices.Equal(got, tt.sealed) {
					t.Errorf("sealed %q, want %q", got, tt.sealed)
				}
			})
		})
	}
}

// Pressure seals once, and not again before half of the memory is free: a
// slow sink leads to fuller batches, not to many small ones.
func TestHysteresis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, 32, Limits{1 << 20, 17 * PageSize, time.Hour})
		var held []*Batch
		step := func(key string, pages int, want ...string) {
			t.Helper()
			if !open(b, key, pages*PageSize, 0) {
				t.Fatalf("no memory for %d pages of %q", pages, key)
			}
			got, all := pressed(b)
			held = append(held, all...)
			if !slices.Equal(got, want) {
				t.Errorf("%q: sealed %q, want %q", key, got, want)
			}
		}
		done := func() { b.Done(held[0], 0, ""); held = held[1:] }
		step("a", 8)
		step("b", 8)
		step("c", 8)
		step("d", 1)
		step("e", 1, "a", "b") // 7 pages left
		done()                 // 14
		step("f", 8)           // 6: low again, but it has not recovered
		step("g", 1)
		done()       // 13
		step("h", 8) // 5
		step("i", 1) // 4, and still nothing is sealed
		b.Seal(ByReopen)
		held = append(held, sealed(b)...)
		for len(held) > 0 {
			done()
		}
		step("k", 16) // it has recovered
		step("l", 8)
		step("m", 1)
		step("n", 1, "k")
	})
}

// Where open batches of a line each hold the memory, some end before there is
// none left; where it is the sink that holds it, they stay open.
func TestManyLines(t *testing.T) {
	t.Run("hold the memory", func(t *testing.T) {
		b := newBuffer(t, 32, Limits{1 << 20, 8 * PageSize, time.Hour})
		if !open(b, "large", 4*PageSize, 0) {
			t.Fatal("no memory")
		}
		var times [][]string
		for i := range 1000 {
			mustAdd(t, b, fmt.Sprint(i), "a line")
			keys, all := pressed(b)
			if len(keys) > 0 {
				times = append(times, keys)
			}
			for _, bt := range all {
				b.Done(bt, 0, "")
			}
		}
		if len(times) < 2 || !slices.Equal(times[0], []string{"large"}) {
			t.Errorf("sealed first: %q", times)
		}
		for _, keys := range times[1:] {
			if len(keys) < 8 {
				t.Errorf("sealed only %q", keys)
			}
		}
	})
	t.Run("do not", func(t *testing.T) {
		b := newBuffer(t, 32, Limits{1 << 20, 4 * PageSize, time.Hour})
		for range 7 {
			if !open(b, "full", 4*PageSize, 0) {
				t.Fatal("no memory")
			}
		}
		for i := range 4 {
			mustAdd(t, b, fmt.Sprint(i), "a line")
		}
		if add(b, "one more", "a line") {
			t.Error("more than there is")
		}
		// Pressure came with the first line's page, before there was a line.
		if got, _ := pressed(b); len(got) > 1 {
			t.Errorf("sealed %q", got)
		}
	})
}

// Whoever waits for memory gets it, whatever the age of batches: what is open
// and in the way ends with the first try.
func TestWaitForRoom(t *testing.T) {
	b := newBuffer(t, 4, Limits{1 << 20, 4 * PageSize, time.Hour})
	mustAdd(t, b, "in the way", "a line")
	room := b.Room()
	if open(b, "large", 4*PageSize, 0) {
		t.Fatal("four pages of three")
	}
	if isClosed(room) {
		t.Fatal("room before any was made")
	}
	got, all := pressed(b)
	if !slices.Equal(got, []string{"in the way"}) {
		t.Fatalf("sealed %q", got)
	}
	b.Done(all[0], 0, "")
	if !isClosed(room) {
		t.Error("Done makes no room")
	}
	if !open(b, "large", 4*PageSize, 0) {
		t.Error("all is free, and four pages are refused")
	}
}

// A key whose last batch was large begins as large only where there is plenty.
func TestSizesWithoutMemory(t *testing.T) {
	b := newBuffer(t, 16, Limits{1 << 20, 8 * PageSize, time.Hour})
	other := b.share.arena.Share(0)
	b.share.Resize(0)
	b.reached["busy"] = 4 * PageSize
	begin := func(what string, want int) {
		t.Helper()
		mustAdd(t, b, "busy", "a line")
		if got := cap(b.open["busy"].data) / PageSize; got != want {
			t.Errorf("%s: begins with %d pages, want %d", what, got, want)
		}
		b.Seal(ByReopen)
		b.reached["busy"] = 4 * PageSize
		deliver(b)
	}
	begin("all is free", 4)
	other.take(8 * PageSize)
	other.take(4 * PageSize)
	other.take(2 * PageSize)
	begin("two pages are free", 1)
}

// While memory is low, all keys begin small.
func TestSizesUnderPressure(t *testing.T) {
	b := newBuffer(t, 32, Limits{1 << 20, 17 * PageSize, time.Hour})
	for key, pages := range map[string]int{"a": 16, "b": 8, "c": 1} {
		open(b, key, pages*PageSize, 0)
	}
	b.reached["busy"] = 4 * PageSize // of 7
	mustAdd(t, b, "busy", "a line")
	if got := cap(b.open["busy"].data); got != PageSize {
		t.Errorf("begins with %d bytes", got)
	}
}

// A batch that cannot grow ends, and the next begins in what is left.
func TestCannotGrow(t *testing.T) {
	b := newBuffer(t, 2, Limits{1 << 20, 2 * PageSize, time.Hour})
	line := strings.Repeat("x", PageSize-101)
	mustAdd(t, b, "", line)
	mustAdd(t, b, "", line)
	if got, all := pressed(b); len(got) != 1 || len(all) != 1 || b.stats.Batches[ByBytes] != 0 {
		t.Errorf("sealed %q", texts(all))
	}
	if add(b, "", line) {
		t.Error("more than there is")
	}
}

// Behind counts what is sealed and not done, and no open batch.
func TestBehind(t *testing.T) {
	b := newBuffer(t, 32, Limits{1 << 20, 17 * PageSize, time.Hour})
	is := func(want bool, what string) {
		t.Helper()
		if b.Behind() != want {
			t.Errorf("behind is %v: %s", !want, what)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		if !open(b, key, 4*PageSize, 0) {
			t.Fatal("no memory")
		}
	}
	is(false, "nothing is sealed")
	b.Seal(ByReopen)
	is(true, "12 pages of 32 are sealed")
	all := sealed(b)
	is(true, "they are not done")
	for _, bt := range all[:2] {
		b.Done(bt, 0, "")
	}
	is(false, "4 pages of 32 are sealed")
}
