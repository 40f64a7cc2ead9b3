package sink

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFramingCut(t *testing.T) {
	for _, test := range []struct {
		framing      Framing
		text, record string
		size         int
	}{
		{Lines, "a\nb\n", "a", 2},
		{Lines, "\nb\n", "", 1},
		{Lines, "a", "a", 1},
		{Octets, "3 a\nb2 cd", "a\nb", 5},
		{Octets, "0 1 x", "", 2},
		{Octets, "12 twelve bytes", "twelve bytes", 15},
		// What no encoder of ours makes is one record.
		{Octets, "4 abc", "4 abc", 5},
		{Octets, "4", "4", 1},
		{Octets, "abc", "abc", 3},
		{Octets, strings.Repeat("9", 40) + " abc", strings.Repeat("9", 40) + " abc", 44},
	} {
		record, size := test.framing.cut([]byte(test.text))
		if string(record) != test.record || size != test.size {
			t.Errorf("%q: %q of %d bytes, want %q of %d", test.text, record, size, test.record, test.size)
		}
	}
}

// The window is always the longest end of what was sent that consists of
// whole frames and is within the limit.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		framing := rapid.SampledFrom([]Framing{Lines, Octets}).Draw(t, "framing")
		w := window{limit: rapid.IntRange(0, 60).Draw(t, "limit"), framing: framing}
		var frames []string
		forgotten := 0 // frames that an earlier, smaller limit took
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			var batch strings.Builder
			for range rapid.IntRange(1, 5).Draw(t, "frames") {
				record := strings.Repeat("r", rapid.IntRange(0, 30).Draw(t, "size"))
				frame := record + "\n"
				if framing == Octets {
					frame = fmt.Sprint(len(record), " ", record)
				}
				frames = append(frames, frame)
				batch.WriteString(frame)
			}
			w.add([]byte(batch.String()), framing)
			forgotten = longestEnd(frames, forgotten, w.limit)
			if rapid.Bool().Draw(t, "resize") {
				w.resize(rapid.IntRange(0, 60).Draw(t, "limit"))
				forgotten = longestEnd(frames, forgotten, w.limit)
			}
			if want := strings.Join(frames[forgotten:], ""); string(w.text) != want {
				t.Fatalf("window %q, want %q within %d", w.text, want, w.limit)
			}
			if n := framing.count(w.text, len(w.text)); n != len(frames)-forgotten {
				t.Fatalf("%d frames counted, want %d", n, len(frames)-forgotten)
			}
		}
	})
}

// longestEnd returns where the longest end of frames begins that is not before
// from and has at most limit bytes.
func longestEnd(frames []string, from, limit int) int {
	at, size := len(frames), 0
	for at > from && size+len(frames[at-1]) <= limit {
		at--
		size += len(frames[at])
	}
	return at
}

func FuzzFramingCut(f *testing.F) {
	f.Add([]byte("3 a\nb2 cd"))
	f.Add([]byte("a\n\nb"))
	f.Add([]byte("99999999999999999999 x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, framing := range []Framing{Lines, Octets} {
			frames, all := 0, []byte{}
			for at := 0; at < len(text); frames++ {
				record, size := framing.cut(text[at:])
				if size < 1 || size > len(text)-at || !bytes.Contains(text[at:at+size], record) {
					t.Fatalf("%q at %d: %q of %d bytes", text, at, record, size)
				}
				all = append(all, text[at:at+size]...)
				at += size
			}
			if n := framing.count(text, len(text)); n != frames || !bytes.Equal(all, text) {
				t.Fatalf("%q: %d frames cut, %d counted", text, frames, n)
			}
		}
	})
}
