package deflate

import "math/bits"

const (
	windowLen   = 64 << 10
	windowMask  = windowLen - 1
	maxDistance = 32 << 10 // RFC 1951 section 3.2.5
	maxLoad     = 8        // bytes at once
)

// window is the latest 64 KiB of a text. A byte is at its position in the text
// modulo 64 KiB, so the 16 bits of a position that the table keeps are an index
// as they are. The first bytes are there again behind the last, to be loaded
// with them. Indices are masked instead of checked.
//
// Bytes that are loaded from behind the end of what is filled decide nothing but
// what the table learns. They are zeros, or those of the text 64 KiB before.
type window [windowLen + maxLoad]byte

// fill copies text from position end on, up to position upTo, which it returns.
// The text is all of it.
func (w *window) fill(text []byte, end, upTo uint) uint {
	for end < upTo {
		at := end & windowMask
		end += uint(copy(w[at:windowLen], text[end:upTo]))
		if at < maxLoad {
			copy(w[windowLen:], w[:maxLoad])
		}
	}
	if end < windowLen {
		clear(w[end : end+maxLoad]) // of an earlier text
	}
	return end
}

// load returns the 8 bytes at i, of which the compiler makes one load.
func (w *window) load(i uint) uint64 {
	i &= windowMask
	return uint64(w[i]) | uint64(w[i+1])<<8 | uint64(w[i+2])<<16 | uint64(w[i+3])<<24 |
		uint64(w[i+4])<<32 | uint64(w[i+5])<<40 | uint64(w[i+6])<<48 | uint64(w[i+7])<<56
}

// common returns how many bytes from a on, before end, are the same as from b
// on.
func (w *window) common(a, b, end uint) (n uint) {
	for ; a+n+maxLoad <= end; n += maxLoad {
		if x := w.load(a+n) ^ w.load(b+n); x != 0 {
			return n + sameBytes(x)
		}
	}
	for a+n < end && w[(a+n)&windowMask] == w[(b+n)&windowMask] {
		n++
	}
	return n
}

// sameBytes is how many bytes are the same of 8 whose exclusive or is x, which
// is not 0.
func sameBytes(x uint64) uint { return uint(bits.TrailingZeros64(x)) / 8 }
