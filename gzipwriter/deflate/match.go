package deflate

import "math/bits"

const (
	windowLen   = 256 << 10
	windowMask  = windowLen - 1
	maxDistance = 32 << 10

	// history is what stays in the window when more text comes. It leaves
	// positions as they are modulo 64 KiB, and so the table too.
	history = 64 << 10

	// ahead is how far the search reads beyond its position. The last bytes of
	// the window are literals.
	ahead = 24

	minLength = 3   // that a token can hold; the search wants 6
	maxLength = 258 // RFC 1951 section 3.2.5

	tableBits = 14
	stride    = 32 // between positions of a match that the table learns

	maxTokens = 16 << 10                            // a block
	maxMatch  = windowLen/(maxLength-minLength) + 2 // tokens of one match
)

// token is a piece of text as two symbols to be written: the first in bits 0
// to 8, the second in bits 9 to 17, and above them the extra bits of a
// distance.
//
//	two literals   byte                       byte
//	one literal    byte                       nothing
//	a match        lengthSymbol + length - 3  distanceSymbol + distance code
type token uint32

const (
	symbols        = 512
	symbolMask     = symbols - 1
	lengthSymbol   = 256
	distanceSymbol = 256
	nothing        = symbolMask

	secondShift = 9
	extraShift  = 18
)

// window is text, with room for reading on behind its end. Indices are masked
// instead of checked.
type window [windowLen + ahead]byte

// load returns the 8 bytes at i, of which the compiler makes one load.
func (w *window) load(i uint) uint64 {
	i &= windowMask
	return uint64(w[i]) | uint64(w[i+1])<<8 | uint64(w[i+2])<<16 | uint64(w[i+3])<<24 |
		uint64(w[i+4])<<32 | uint64(w[i+5])<<40 | uint64(w[i+6])<<48 | uint64(w[i+7])<<56
}

// hash is of the low 6 bytes of v. Shorter matches save too little in lines of
// text: with 5 bytes the search takes 4 % longer and finds next to nothing.
func hash(v uint64) uint { return uint(v << 16 * 0xcf1bbcdcbf9b >> (64 - tableBits)) }

// differ tells whether an exclusive or has a bit in its low 6 bytes.
func differ(x uint64) bool { return x<<16 != 0 }

// match makes tokens of the window's text from begin on, until end or until a
// block is full, and counts their symbols. It returns where it stopped.
func (e *Encoder) match(begin, end uint) (next uint, made []token) {
	w, table, tokens := &e.window, &e.table, &e.tokens
	firsts, seconds := &e.firsts, &e.seconds
	clear(firsts[:])
	clear(seconds[:])
	s, n := begin, uint(0)
	for s+ahead < end && n < maxTokens-maxMatch {
		// Look up both s and s+1. What the table has may be stale, or of the
		// text before: it counts only if it is near and its bytes are the same.
		v, v1 := w.load(s), w.load(s+1)
		h, h1 := hash(v), hash(v1)
		from := s - 1 - uint(uint16(s-1-uint(table[h])))
		table[h] = uint16(s)
		from1 := s - uint(uint16(s-uint(table[h1])))
		table[h1] = uint16(s + 1)

		x, x1 := v^w.load(from), v1^w.load(from1)
		if differ(x) || from >= s || s-from > maxDistance {
			literal := token(uint8(v))
			firsts[literal]++
			if differ(x1) || from1 > s || s+1-from1 > maxDistance {
				literal1 := token(uint8(v1))
				seconds[literal1]++
				tokens[n] = literal | literal1<<secondShift
				n++
				s += 2
				continue
			}
			tokens[n] = literal | nothing<<secondShift
			n++
			s++
			from, x = from1, x1
		}

		length := uint(bits.TrailingZeros64(x)) / 8
		if x == 0 {
			length = 8 + w.common(s+8, from+8, end)
		}
		code, bits := distanceCode(uint32(s - from))
		for p := s + stride; p < s+length; p += stride {
			table[hash(w.load(p))] = uint16(p)
		}
		s += length
		distance := token(distanceSymbol+code)<<secondShift | token(bits)<<extraShift
		for length > maxLength {
			part := min(maxLength, length-minLength)
			firsts[lengthSymbol+part-minLength]++
			seconds[(distanceSymbol+code)&symbolMask]++
			tokens[n] = token(lengthSymbol+part-minLength) | distance
			n++
			length -= part
		}
		firsts[lengthSymbol+length-minLength]++
		seconds[(distanceSymbol+code)&symbolMask]++
		tokens[n] = token(lengthSymbol+length-minLength) | distance
		n++

		table[hash(w.load(s-1))] = uint16(s - 1)
	}
	for ; end-s <= ahead && s < end && n < maxTokens; s++ {
		literal := w[s]
		firsts[literal]++
		tokens[n] = token(literal) | nothing<<secondShift
		n++
	}
	return s, tokens[:n]
}

// common returns how many bytes from a on, before end, are the same as from b
// on. 8 bytes at a can be loaded.
func (w *window) common(a, b, end uint) (n uint) {
	for ; a+n+8 <= end; n += 8 {
		if x := w.load(a+n) ^ w.load(b+n); x != 0 {
			return n + uint(bits.TrailingZeros64(x))/8
		}
	}
	for a+n < end && w[a+n] == w[b+n] {
		n++
	}
	return n
}
