// Package deflate compresses log text into RFC 1951 streams, for speed.
//
// It is level 1 of gzip members and nothing else: a whole text at a time, no
// dictionary, no flush. Lines of a log repeat most of the lines before them, so
// a greedy search that knows one candidate a position does well. What costs
// then is not the search but branches that a processor cannot foresee, and the
// chain of loads from the end of a match to that of the next. Hence
//
//   - a hash table of 16 bits an entry, 32 KiB in all;
//   - a window of 64 KiB, of which such an entry is an index;
//   - two positions a step, looked up independently of each other;
//   - tokens of two symbols, written without a branch: two literals, or a
//     length and a distance.
//
// What comes out depends on the text alone.
package deflate

// Encoder compresses texts, one at a time. It takes 240 KiB. Not for
// concurrent use.
type Encoder struct {
	window  window
	table   [1 << tableBits]uint16 // of positions in the window, modulo 64 KiB
	tokens  [maxTokens]token       // of a block
	n       uint                   // how many there are
	firsts  [symbols]uint32        // histograms of their symbols
	seconds [symbols]uint32

	literals, distances *code
	header              header
	encoding            encoding
	out                 bitWriter
}

// NewEncoder makes an Encoder.
func NewEncoder() *Encoder {
	return &Encoder{literals: newCode(literalCodes), distances: newCode(distanceCodes), header: header{code: newCode(headerCodes)}}
}

// Append appends text to dst as one stream and returns the extended slice. It
// keeps nothing of either.
func (e *Encoder) Append(dst, text []byte) []byte {
	clear(e.table[:])
	e.out = bitWriter{to: dst}
	at, end, size := uint(0), uint(0), uint(len(text)) // positions in text
	for last := false; !last; {
		e.begin()
		begin := at
		for at < size && !e.full() {
			// What a match may be found in stays in the window.
			end = e.window.fill(text, end, min(at+windowLen-maxDistance, size))
			at = e.match(at, end)
			if end == size && !e.full() {
				e.rest(at, end)
				at = end
			}
		}
		last = at == size
		e.block(text[begin:at], e.tokens[:e.n], last)
	}
	e.out.align()
	dst = e.out.to
	e.out.to = nil
	return dst
}
