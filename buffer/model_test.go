package buffer

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// bubbled hides from rapid that it has a *testing.T, which it would ask for a
// deadline: that is forbidden in a bubble.
type bubbled struct{ *testing.T }

// model is a buffer, and what the test knows of the messages that went in.
type model struct {
	arena *Arena
	buf   *Buffer
	other *Share // of another sink
	taken [][]byte
	keys  map[string][]entry
	held  []held // got from Next, not done
	gaps  map[string]bool

	accepted, delivered, lost, batches, sequence uint64
	dropped, told                                int
}

// entry is what was accepted for a key, in order.
type entry struct {
	text string
	gap  int // not text, but so many messages dropped here
}

// held is a batch, and its text when it was handed over.
type held struct {
	*Batch
	text string
}

// Whatever is done with a buffer, and however short its memory is: all that
// it accepted comes out once, in order, within the limits, and is counted.
func TestBufferModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubbled{t}, func(t *rapid.T) {
			m := newModel(t)
			defer m.arena.Close()
			first := freePieces(m.arena)
			t.Repeat(map[string]func(*rapid.T){
				"":        m.check,
				"append":  m.append,
				"append2": m.append, // twice as often as the rest
				"lines":   m.lines,
				"lines2":  m.lines,
				"drop":    m.drop,
				"told":    m.toldGaps,
				"seal":    m.seal,
				"mark":    m.mark,
				"spec":    m.setSpec,
				"next":    m.nextOne,
				"done":    m.done,
				"other":   m.otherSink,
				"sleep":   m.sleep,
			})
			m.finish(t)
			if got := freePieces(m.arena); fmt.Sprint(got) != fmt.Sprint(first) {
				t.Fatalf("all is done, but free pieces are %v, not %v", got, first)
			}
		})
	})
}

func newModel(t *rapid.T) *model {
	pages := rapid.IntRange(1, 40).Draw(t, "pages")
	a, err := NewArena(pages * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{arena: a, keys: make(map[string][]entry), gaps: make(map[string]bool)}
	share := a.Share(rapid.IntRange(0, pages).Draw(t, "guaranteed") * PageSize)
	m.other = a.Share(rapid.IntRange(0, pages).Draw(t, "other") * PageSize)
	m.buf = New("sink", share, Limits{})
	m.setSpec(t)
	return m
}

func (m *model) setSpec(t *rapid.T) {
	limits := Limits{
		Messages: rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "messages"),
		Bytes:    rapid.SampledFrom([]int{1, 100, PageSize, 10_000, 4 * PageSize}).Draw(t, "bytes"),
		Flush:    rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "flush"),
	}
	m.buf.Begin()
	defer m.buf.End()
	m.buf.SetSpec(limits, limits)
}

func drawKey(t *rapid.T) string { return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key") }

// drawLine is a line without its LF, of which no two are alike.
func (m *model) drawLine(t *rapid.T, label string) string {
	n := rapid.OneOf(
		rapid.IntRange(0, 60), rapid.IntRange(0, 60),
		rapid.IntRange(PageSize-10, PageSize+10), rapid.IntRange(0, 3*PageSize),
	).Draw(t, label)
	name := fmt.Sprintf("%d:", m.accepted)
	return (name + strings.Repeat("x", n))[:n]
}

// received is mostly now; a source that had to wait comes late.
func received(t *rapid.T) time.Time {
	return time.Now().Add(-time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 500, 5000}).Draw(t, "ms late")) * time.Millisecond)
}

// append takes a burst on, of which the batches are looked up before or not.
func (m *model) append(t *rapid.T) {
	keys := make([][]byte, rapid.IntRange(1, 6).Draw(t, "messages"))
	for i := range keys {
		keys[i] = []byte(drawKey(t))
	}
	m.buf.Begin()
	defer m.buf.End()
	look := rapid.Bool().Draw(t, "look")
	if look {
		m.buf.Look(keys, rapid.SampledFrom([]int{0, 60, 2 * PageSize}).Draw(t, "size"))
	}
	for i, key := range keys {
		if look {
			m.buf.Seen(i)
		}
		m.appendLocked(t, string(key))
	}
}

func (m *model) appendLocked(t *rapid.T, key string) {
	text, newline := m.drawLine(t, "bytes"), rapid.Bool().Draw(t, "newline")
	if !newline && text == "" {
		text = "frame"
	}
	took := m.buf.Append([]byte(key), []byte(text), newline, received(t))
	if newline {
		text += "\n"
	}
	if !took {
		m.refused(t, len(text))
		return
	}
	m.accepted++
	m.keys[key] = append(m.keys[key], entry{text: text})
}

// refused checks that there was no memory for n bytes.
func (m *model) refused(t *rapid.T, n int) {
	if fits(m.buf.share, n) {
		t.Fatalf("%d bytes refused, but there is memory", n)
	}
}

func (m *model) lines(t *rapid.T) {
	key := drawKey(t)
	var all []string
	for range rapid.IntRange(1, 30).Draw(t, "lines") {
		all = append(all, m.drawLine(t, "bytes")+"\n")
	}
	text := strings.Join(all, "")
	m.buf.Begin()
	n, size := m.buf.AppendLines([]byte(key), []byte(text), len(all), received(t))
	m.buf.End()
	if size != len(strings.Join(all[:n], "")) {
		t.Fatalf("took %d lines, but %d bytes", n, size)
	}
	if n < len(all) {
		m.refused(t, len(all[n]))
	}
	m.accepted += uint64(n)
	for _, line := range all[:n] {
		m.keys[key] = append(m.keys[key], entry{text: line})
	}
}

func (m *model) drop(t *rapid.T) {
	key, n := drawKey(t), rapid.IntRange(1, 5).Draw(t, "messages")
	m.buf.Begin()
	defer m.buf.End()
	m.buf.Drop([]byte(key), n, "memory full")
	if m.buf.IsOpen([]byte(key)) {
		t.Fatal("a batch is open across a gap")
	}
	m.dropped += n
	m.gaps[key] = true
	m.keys[key] = append(m.keys[key], entry{gap: n})
}

// toldGaps forgets gaps, as sinks do: once the batch that tells it is open.
func (m *model) toldGaps(t *rapid.T) {
	m.buf.Begin()
	defer m.buf.End()
	for key := range m.keys {
		gap, ok := m.buf.Gap([]byte(key))
		if ok != m.gaps[key] || ok && (gap.Messages < 1 || gap.Reason != "memory full") {
			t.Fatalf("gap of %q: %v %v", key, gap, ok)
		}
		if ok && m.buf.IsOpen([]byte(key)) {
			m.buf.Told([]byte(key))
			delete(m.gaps, key)
		}
	}
}

func (m *model) seal(*rapid.T) { m.buf.Seal(ByReopen) }

func (m *model) mark(t *rapid.T) {
	m.buf.Mark()
	m.buf.Begin()
	defer m.buf.End()
	if len(m.buf.open) > 0 {
		t.Fatal("a batch is open across a mark")
	}
}

func (m *model) sleep(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond)
}

// otherSink takes memory, or gives it back.
func (m *model) otherSink(t *rapid.T) {
	if rapid.Bool().Draw(t, "take") {
		if piece := take(m.other, rapid.IntRange(1, 4*PageSize).Draw(t, "bytes")); piece != nil {
			m.taken = append(m.taken, piece)
		}
		return
	}
	for _, piece := range m.taken {
		m.other.give(piece, m.other.arena.current)
	}
	m.taken = nil
}

func (m *model) nextOne(t *rapid.T) { m.next(t) }

// next takes a batch or a mark, and reports whether there is one, or may be
// one later.
func (m *model) next(t *rapid.T) bool {
	bt, closed := m.buf.Next()
	if bt == nil || bt.Mark {
		return bt != nil || !closed
	}
	if m.sequence++; bt.Sequence != m.sequence {
		t.Fatalf("sequence %d, want %d", bt.Sequence, m.sequence)
	}
	m.told += bt.Dropped
	m.compare(t, bt)
	limits := bt.Spec.(Limits)
	if age := time.Since(bt.First); bt.Cause == ByAge && age < limits.Flush {
		t.Fatalf("ended by age after %v of %v", age, limits.Flush)
	}
	m.held = append(m.held, held{bt, string(bt.Bytes())})
	return true
}

// compare takes the entries that a batch holds off the key's, and holds the
// batch against them and its limits.
func (m *model) compare(t *rapid.T, bt *Batch) {
	rest, entries, gap := bt.Bytes(), m.keys[bt.Key], 0
	n := 0
	for ; n < len(entries) && entries[n].gap > 0; n++ {
		gap += entries[n].gap
	}
	begin := n
	for ; n < len(entries) && len(rest) > 0; n++ {
		e := entries[n]
		if e.gap > 0 || !bytes.HasPrefix(rest, []byte(e.text)) {
			t.Fatalf("key %q: the batch holds %.40q where %.40q belongs (gap %d)", bt.Key, rest, e.text, e.gap)
		}
		rest = rest[len(e.text):]
	}
	limits, messages := bt.Spec.(Limits), n-begin
	switch {
	case len(rest) > 0:
		t.Fatalf("key %q: nobody wrote %.40q", bt.Key, rest)
	case messages == 0:
		t.Fatal("an empty batch")
	case bt.Messages != messages || messages > limits.Messages:
		t.Fatalf("batch says %d messages, holds %d of at most %d", bt.Messages, messages, limits.Messages)
	case len(bt.Bytes()) > limits.Bytes && messages > 1:
		t.Fatalf("%d bytes in %d messages, over the limit of %d", len(bt.Bytes()), messages, limits.Bytes)
	case bt.Dropped != gap:
		t.Fatalf("batch tells of %d dropped messages, want %d", bt.Dropped, gap)
	}
	m.keys[bt.Key] = entries[n:]
}

func (m *model) done(t *rapid.T) {
	if len(m.held) == 0 {
		t.Skip("none held")
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "batch")
	h := m.held[i]
	m.held = append(m.held[:i], m.held[i+1:]...)
	if string(h.Bytes()) != h.text {
		t.Fatal("the text of a batch changed while it was held")
	}
	lost := rapid.IntRange(0, h.Messages).Draw(t, "lost")
	m.lost += uint64(lost)
	m.delivered += uint64(h.Messages - lost)
	m.buf.Done(h.Batch, lost, "refused")
}

// check holds the numbers against the model's, and the clock against what is
// open.
func (m *model) check(t *rapid.T) {
	synctest.Wait()
	s := m.buf.Stats()
	if s.Accepted != m.accepted || s.Delivered != m.delivered || s.Lost["refused"] != m.lost {
		t.Fatalf("stats %+v, want %+v", s, *m)
	}
	if s.Accepted != s.Delivered+s.Lost["refused"]+s.Buffered {
		t.Fatalf("out of balance: %+v", s)
	}
	m.buf.Begin()
	defer m.buf.End()
	m.batches = 0
	for _, n := range s.Batches {
		m.batches += n
	}
	if m.batches != m.buf.sequence {
		t.Fatalf("%d batches by cause, %d in all", m.batches, m.buf.sequence)
	}
	open := 0
	for key, bt := range m.buf.open {
		open += cap(bt.data)
		if age := time.Since(bt.First); age >= m.buf.limits.Flush {
			t.Fatalf("the batch of %q is open for %v", key, age)
		}
		if s.Oldest.After(bt.First) {
			t.Fatalf("a batch is older than the oldest")
		}
	}
	if m.buf.held != open {
		t.Fatalf("open batches hold %d bytes of memory, the buffer says %d", open, m.buf.held)
	}
}

// finish closes the buffer, empties it, and looks for what did not come out.
func (m *model) finish(t *rapid.T) {
	m.buf.Close()
	for m.next(t) {
	}
	for _, h := range m.held {
		m.delivered += uint64(h.Messages)
		m.buf.Done(h.Batch, 0, "")
	}
	for _, piece := range m.taken {
		m.other.give(piece, m.other.arena.current)
	}
	m.check(t)
	for key, left := range m.keys {
		for _, e := range left {
			if e.gap == 0 {
				t.Fatalf("key %q: %.40q did not come out", key, e.text)
			}
			m.told += e.gap
		}
	}
	if s := m.buf.Stats(); s.Buffered != 0 || !s.Oldest.IsZero() {
		t.Fatalf("after all is done: %+v", s)
	}
	if m.told != m.dropped {
		t.Fatalf("%d messages dropped, %d told of", m.dropped, m.told)
	}
}
