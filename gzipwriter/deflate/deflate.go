// Package deflate compresses log text into RFC 1951 streams, for speed.
//
// It is level 1 of gzip members and nothing else: a whole text at a time, no
// dictionary, no flush. Lines of a log repeat most of the lines before them, so
// a greedy search that knows one candidate a position does well. What costs
// then is not the search but branches that a processor cannot foresee and
// tables that its first cache cannot hold. Hence
//
//   - a hash table of 16 bits an entry, 32 KiB in all;
//   - two positions a step, looked up independently of each other;
//   - tokens of two symbols, written without a branch: two literals, or a
//     length and a distance.
//
// What comes out depends on the text alone.
package deflate

// Encoder compresses texts, one at a time. It takes 400 KiB. Not for
// concurrent use.
type Encoder struct {
	window  window
	table   [1 << tableBits]uint16 // of positions in the window, modulo 64 KiB
	tokens  [maxTokens]token
	firsts  [symbols]uint32 // histograms of the block's tokens
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
	for begin, more := uint(0), true; more; begin = history {
		end := begin + uint(copy(e.window[begin:windowLen], text))
		text = text[end-begin:]
		more = len(text) > 0
		for last := false; !last; {
			next, tokens := e.match(begin, end)
			last = next == end
			e.block(e.window[begin:next], tokens, last && !more)
			begin = next
		}
		if more {
			copy(e.window[:history], e.window[windowLen-history:windowLen])
		}
	}
	e.out.align()
	dst = e.out.to
	e.out.to = nil
	return dst
}
