package deflate

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// The latest 64 KiB can be loaded from any position, however the text came in.
func TestWindow(t *testing.T) {
	text := randomBytes(8, 3*windowLen, 256)
	r := rand.New(rand.NewPCG(8, 8))
	for range 20 {
		var w window
		for end := uint(0); end < uint(len(text)); {
			// Small steps about the window's end.
			upTo := end + 1 + r.UintN(12)
			if left := -end & windowMask; left >= 100 && left <= windowLen-100 {
				upTo = end + min(left-50, 1+r.UintN(windowLen-maxDistance))
			}
			upTo = min(upTo, uint(len(text)))
			end = w.fill(text, end, upTo)
			if end != upTo {
				t.Fatalf("filled up to %d, not %d", end, upTo)
			}
			oldest := uint(max(0, int(end)-windowLen))
			at := end &^ windowMask // where the window began last
			for i := max(oldest, at-min(at, 20)); i < min(at+20, end-min(end, maxLoad)); i++ {
				if got, want := w.load(i), binary.LittleEndian.Uint64(text[i:]); got != want {
					t.Fatalf("up to %d: %x at %d, not %x", end, got, i, want)
				}
			}
			for range 100 {
				i, j := oldest+r.UintN(end-oldest), oldest+r.UintN(end-oldest)
				want := uint(0)
				for i+want < end && j+want < end && text[i+want] == text[j+want] {
					want++
				}
				if got := w.common(max(i, j), min(i, j), end); got != want {
					t.Fatalf("up to %d: %d bytes are the same from %d and %d on, not %d", end, got, i, j, want)
				}
			}
		}
	}
}
