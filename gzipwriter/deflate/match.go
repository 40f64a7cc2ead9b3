package deflate

const (
	// ahead is how far the search reads beyond its position, before it knows of
	// a match. The last bytes of a text are literals.
	ahead = 24

	minLength = 3   // that a token can hold; the search wants 6
	maxLength = 258 // RFC 1951 section 3.2.5

	tableBits = 14
	stride    = 32 // between positions of a match that the table learns

	maxTokens = 32 << 10                              // a block
	maxMatch  = maxDistance/(maxLength-minLength) + 2 // tokens of a match and the literal before it
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

// hash is of the low 6 bytes of v. Shorter matches save too little in lines of
// text: with 5 bytes the search takes 4 % longer and finds next to nothing.
func hash(v uint64) uint { return uint(v << 16 * 0xcf1bbcdcbf9b >> (64 - tableBits)) }

// differ tells whether an exclusive or has a bit in its low 6 bytes.
func differ(x uint64) bool { return x<<16 != 0 }

// begin begins a block.
func (e *Encoder) begin() {
	e.n = 0
	clear(e.firsts[:])
	clear(e.seconds[:])
}

// full says that another match may find no room in the block.
func (e *Encoder) full() bool { return e.n >= maxTokens-maxMatch }

// match makes tokens of the text from position s on and counts their symbols,
// until the block is full or so little is left before end, where the window
// ends, that it cannot look ahead. It returns where it stopped.
func (e *Encoder) match(s, end uint) (next uint) {
	w, table, tokens := &e.window, &e.table, &e.tokens
	firsts, seconds := &e.firsts, &e.seconds
	n := e.n
	for s+ahead < end && n < maxTokens-maxMatch {
		// Look up both s and s+1. What the table has may be stale: it counts
		// only if it is near and its bytes are the same. An entry that was
		// never written is position 0 of the window, which holds text by then.
		v, v1 := w.load(s), w.load(s+1)
		h, h1 := hash(v), hash(v1)
		from := table[h]
		table[h] = uint16(s)
		from1 := table[h1]
		table[h1] = uint16(s + 1)

		x, x1 := v^w.load(uint(from)), v1^w.load(uint(from1))
		if differ(x) || far(s, from) {
			literal := token(uint8(v))
			firsts[literal]++
			s++
			if differ(x1) || far(s, from1) {
				literal1 := token(uint8(v1))
				seconds[literal1]++
				tokens[n] = literal | literal1<<secondShift
				n++
				s++
				continue
			}
			tokens[n] = literal | nothing<<secondShift
			n++
			from, x = from1, x1
		}

		code, bits := distanceCode(uint32(uint16(s) - from))
		distance := token(distanceSymbol+code)<<secondShift | token(bits)<<extraShift
		var length uint
		if x != 0 {
			length = sameBytes(x)
		} else if x = w.load(s+8) ^ w.load(uint(from)+8); x != 0 {
			length = 8 + sameBytes(x)
		} else {
			length = 16 + w.common(s+16, uint(from)+16, end)
		}
		for p := s + stride; p < s+length; p += stride {
			table[hash(w.load(p))] = uint16(p)
		}
		s += length
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
	e.n = n
	return s
}

// far tells whether position s is too far from a table's entry for a match, or
// is that itself.
func far(s uint, from uint16) bool { return uint16(s)-from-1 >= maxDistance }

// rest makes literals of the text's end. The block has the room.
func (e *Encoder) rest(s, end uint) {
	for ; s < end; s++ {
		literal := e.window[s&windowMask]
		e.firsts[literal]++
		e.tokens[e.n] = token(literal) | nothing<<secondShift
		e.n++
	}
}
