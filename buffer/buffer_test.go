package buffer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const long = time.Hour // a flush that no test waits for

func TestCauses(t *testing.T) {
	var names []string
	for _, c := range Causes() {
		names = append(names, c.String())
	}
	// The label values of logboom_batches_total.
	if got := strings.Join(names, "|"); got != "messages|bytes|age|pressure|reopen|shutdown" {
		t.Error(got)
	}
}

// Where batches end, by number and by size, at and around the borders.
func TestAppend(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits Limits
		in     []string // each gets an LF
		sealed []string
		causes []Cause
		open   string
	}{
		{"below both", Limits{3, 100, long}, []string{"a", "b"}, nil, nil, "a\nb\n"},
		{"the number is reached", Limits{2, 100, long}, []string{"a", "b", "c"}, []string{"a\nb\n"}, []Cause{ByMessages}, "c\n"},
		{"one message a batch", Limits{1, 100, long}, []string{"a", "", "c"}, []string{"a\n", "\n", "c\n"}, []Cause{ByMessages, ByMessages, ByMessages}, ""},
		{"a byte short of the size", Limits{9, 7, long}, []string{"abc", "d"}, nil, nil, "abc\nd\n"},
		{"the size exactly", Limits{9, 6, long}, []string{"abc", "d", "e"}, []string{"abc\nd\n"}, []Cause{ByBytes}, "e\n"},
		{"a byte over the size", Limits{9, 5, long}, []string{"abc", "d"}, []string{"abc\n"}, []Cause{ByBytes}, "d\n"},
		{"a message of the size", Limits{9, 5, long}, []string{"abcd", "e"}, []string{"abcd\n"}, []Cause{ByBytes}, "e\n"},
		{"both at once", Limits{2, 4, long}, []string{"a", "b"}, []string{"a\nb\n"}, []Cause{ByMessages}, ""},
		{"a larger one goes alone, in order", Limits{9, 5, long}, []string{"a", "larger", "b"}, []string{"a\n", "larger\n"}, []Cause{ByBytes, ByBytes}, "b\n"},
		{"larger ones in a row", Limits{9, 5, long}, []string{"larger", "larger still"}, []string{"larger\n", "larger still\n"}, []Cause{ByBytes, ByBytes}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBuffer(t, 8, tt.limits)
			for _, text := range tt.in {
				mustAdd(t, b, "", text)
			}
			batches := sealed(b)
			var causes []Cause
			for _, bt := range batches {
				causes = append(causes, bt.Cause)
			}
			if got := texts(batches); !slices.Equal(got, tt.sealed) || !slices.Equal(causes, tt.causes) {
				t.Errorf("sealed %q %v, want %q %v", got, causes, tt.sealed, tt.causes)
			}
			var open string
			if bt := b.open[""]; bt != nil {
				open = string(bt.Bytes())
			}
			if open != tt.open {
				t.Errorf("open %q, want %q", open, tt.open)
			}
		})
	}
}

// A frame that brings its own length fills a batch to the last byte, and does
// not need a larger piece for an LF that it does not have.
func TestAppendWithoutLF(t *testing.T) {
	b := newBuffer(t, 1, Limits{100, PageSize, long})
	frame := []byte(strings.Repeat("x", PageSize/2))
	b.Begin()
	defer b.End()
	for range 2 {
		if !b.Append(nil, frame, false, time.Now()) {
			t.Fatal("two halves of a page do not fit into it")
		}
	}
	if bt := b.queue[b.head]; bt.Cause != ByBytes || bt.Messages != 2 || len(bt.Bytes()) != PageSize {
		t.Errorf("%d messages, %d bytes, by %v", bt.Messages, len(bt.Bytes()), bt.Cause)
	}
}

func TestAppendKeepsItsOwnCopy(t *testing.T) {
	b := newBuffer(t, 1, Limits{9, 100, long})
	key, text := []byte("key"), []byte("text")
	b.Begin()
	b.Append(key, text, true, time.Now())
	copy(key, "XXX")
	copy(text, "XXXX")
	b.End()
	b.Seal(ByReopen)
	if bt, _ := b.Next(); bt.Key != "key" || string(bt.Bytes()) != "text\n" {
		t.Errorf("%q under %q", bt.Bytes(), bt.Key)
	}
}

// A batch grows from a page to its limit, and the next of its key begins as
// large; other keys begin small.
func TestSizes(t *testing.T) {
	b := newBuffer(t, 256, Limits{1 << 20, 8 * PageSize, long})
	line := strings.Repeat("x", 99)
	add := func(key string, bytes int) *Batch {
		for range bytes / (len(line) + 1) {
			mustAdd(t, b, key, line)
		}
		return b.open[key]
	}
	for _, tt := range []struct {
		bytes, capacity int
	}{{1000, 1}, {4000, 2}, {4000, 4}, {10000, 8}} {
		if bt := add("busy", tt.bytes); cap(bt.data) != tt.capacity*PageSize {
			t.Errorf("%d bytes have %d pages, want %d", len(bt.data), cap(bt.data)/PageSize, tt.capacity)
		}
	}
	b.Seal(ByReopen)
	if bt := add("quiet", 100); cap(bt.data) != PageSize {
		t.Errorf("a quiet key begins with %d bytes", cap(bt.data))
	}
	if bt := add("busy", 100); cap(bt.data) != 8*PageSize {
		t.Errorf("a busy key begins with %d bytes", cap(bt.data))
	}
	b.Seal(ByReopen) // it was quiet this time
	if bt := add("busy", 100); cap(bt.data) != PageSize {
		t.Errorf("a key that was quiet begins with %d bytes", cap(bt.data))
	}
}

// What is remembered of keys does not grow with their number.
func TestKeysAreForgotten(t *testing.T) {
	b := newBuffer(t, 4, Limits{1, 2 * PageSize, long})
	for i := range maxReached {
		b.reached[fmt.Sprint(i)] = 2 * PageSize
		b.gaps[fmt.Sprint(i)] = new(gap)
	}
	mustAdd(t, b, "one more", strings.Repeat("x", PageSize))
	b.Begin()
	b.Drop([]byte("one more"), 1, "memory full")
	b.Drop([]byte("and another"), 1, "memory full")
	b.End()
	if len(b.reached) != 1 || len(b.gaps) != 2 {
		t.Errorf("%d sizes and %d gaps are remembered", len(b.reached), len(b.gaps))
	}
}

// GZ06: nothing in, nothing out.
func TestNoEmptyBatch(t *testing.T) {
	b := newBuffer(t, 1, Limits{9, 100, long})
	b.Begin()
	b.AppendLines(nil, nil, 0, time.Now())
	b.SetSpec(b.limits, nil)
	b.End()
	b.Seal(ByReopen)
	b.Close()
	if bt, closed := b.Next(); bt != nil || !closed {
		t.Errorf("got %+v, closed %v", bt, closed)
	}
}

// Batches carry what was set when they were opened; a mark lies between what
// came before it and what came after, and takes no number.
func TestSpecAndMark(t *testing.T) {
	b := newBuffer(t, 8, Limits{9, 100, long})
	set := func(spec any) {
		b.Begin()
		defer b.End()
		b.SetSpec(b.limits, spec)
	}
	set("old")
	mustAdd(t, b, "a", "1")
	mustAdd(t, b, "b", "2")
	b.Mark()
	mustAdd(t, b, "a", "3")
	set("new")
	mustAdd(t, b, "a", "4")
	b.Close()
	var got []string
	for _, bt := range sealed(b) {
		if bt.Mark {
			got = append(got, "mark")
			b.Done(bt, 0, "") // not needed, and does nothing
			continue
		}
		got = append(got, fmt.Sprintf("%d %v %q %v", bt.Sequence, bt.Spec, bt.Bytes(), bt.Cause))
		b.Done(bt, 0, "")
	}
	want := []string{`1 old "1\n" reopen`, `2 old "2\n" reopen`, "mark", `3 old "3\n" reopen`, `4 new "4\n" shutdown`}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if s := b.Stats(); s.Delivered != 4 || s.DeliveredBytes != 8 || s.Batches[ByReopen] != 3 || s.Batches[ByShutdown] != 1 {
		t.Errorf("%+v", s)
	}
}

// A gap is told by the Dropped of one batch, and until Told by Gap, also
// where one append fills several batches.
func TestGap(t *testing.T) {
	b := newBuffer(t, 8, Limits{1, 100, long})
	mustAdd(t, b, "a", "before")
	b.Begin()
	b.Drop([]byte("a"), 2, "memory full")
	b.Drop([]byte("a"), 3, "stopped")
	if gap, ok := b.Gap([]byte("a")); !ok || gap != (Gap{5, "stopped"}) {
		t.Errorf("gap %v %v", gap, ok)
	}
	if gap, ok := b.Gap([]byte("b")); ok {
		t.Errorf("gap of another key: %v", gap)
	}
	b.AppendLines([]byte("b"), []byte("x\n"), 1, time.Now())
	b.AppendLines([]byte("a"), []byte("1\n2\n3\n"), 3, time.Now())
	b.Told([]byte("a"))
	if gap, ok := b.Gap([]byte("a")); ok {
		t.Errorf("told, and still there: %v", gap)
	}
	b.End()
	var dropped []int
	for _, bt := range sealed(b) {
		dropped = append(dropped, bt.Dropped)
	}
	if want := []int{0, 0, 5, 0, 0}; !slices.Equal(dropped, want) {
		t.Errorf("batches tell of %v dropped messages, want %v", dropped, want)
	}
}

func TestDone(t *testing.T) {
	b := newBuffer(t, 8, Limits{2, 100, long})
	for _, text := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		mustAdd(t, b, "", text)
	}
	for i, lost := range []int{0, 1, 2} {
		bt, _ := b.Next()
		b.Done(bt, lost, []string{"", "refused", "stopped"}[i])
	}
	s := b.Stats()
	if s.Accepted != 7 || s.Delivered != 3 || s.Lost["refused"] != 1 || s.Lost["stopped"] != 2 || s.Buffered != 1 {
		t.Errorf("%+v", s)
	}
	if s.DeliveredBytes != 8 {
		t.Errorf("%d bytes delivered", s.DeliveredBytes)
	}
	s.Lost["refused"]++
	if b.Stats().Lost["refused"] != 1 {
		t.Error("Stats gives its own map away")
	}
}

// The queue is compacted while it is never empty.
func TestQueueStaysSmall(t *testing.T) {
	b := newBuffer(t, 64, Limits{1, 100, long})
	for i := range 10 {
		mustAdd(t, b, "", fmt.Sprint(i))
	}
	for i := 10; i < 5000; i++ {
		mustAdd(t, b, "", fmt.Sprint(i))
		bt, _ := b.Next()
		if want := fmt.Sprintln(i - 10); string(bt.Bytes()) != want {
			t.Fatalf("got %q, want %q", bt.Bytes(), want)
		}
		b.Done(bt, 0, "")
	}
	if cap(b.queue) > 100 {
		t.Errorf("the queue of 10 batches has room for %d", cap(b.queue))
	}
}

// Ready gets an element for what Next has, and for the end.
func TestReady(t *testing.T) {
	b := newBuffer(t, 8, Limits{1, 100, long})
	ready := func() bool {
		select {
		case <-b.Ready():
			return true
		default:
			return false
		}
	}
	if ready() {
		t.Error("ready with nothing")
	}
	mustAdd(t, b, "", "1")
	mustAdd(t, b, "", "2")
	if !ready() || len(sealed(b)) != 2 {
		t.Error("not ready with two batches")
	}
	if bt, closed := b.Next(); bt != nil || closed {
		t.Errorf("got %v, closed %v", bt, closed)
	}
	b.Close()
	b.Close()
	if !ready() {
		t.Error("not ready when closed")
	}
}
