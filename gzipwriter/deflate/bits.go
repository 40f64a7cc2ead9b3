package deflate

import "encoding/binary"

// bitWriter appends bits to bytes, the first bit lowest.
type bitWriter struct {
	to   []byte
	bits uint64 // that are no whole byte yet
	n    uint   // how many, below 8
}

// put appends the low n bits of v, of at most 56; the others are 0.
func (w *bitWriter) put(v uint64, n uint) {
	w.to, w.bits, w.n = flush(w.to, w.bits|v<<w.n, w.n+n)
}

// flush appends the whole bytes of n bits, and returns the bits that are left.
func flush(to []byte, bits uint64, n uint) ([]byte, uint64, uint) {
	to = binary.LittleEndian.AppendUint64(to, bits)
	return to[:len(to)-8+int(n/8)], bits >> (n &^ 7 & 63), n % 8
}

// align fills up the last byte.
func (w *bitWriter) align() { w.put(0, -w.n%8) }

// maxStored is the longest stored block, bytes.
const maxStored = 1<<16 - 1

// storedSize is what n bytes of text take stored, bits, less what fills up the
// byte before them.
func storedSize(n int) int { return 8 * (n + 5*(n/maxStored+1)) }

// stored appends text as it is (RFC 1951 section 3.2.4).
func (w *bitWriter) stored(text []byte, final uint64) {
	for more := true; more; {
		part := text[:min(len(text), maxStored)]
		text = text[len(part):]
		if more = len(text) > 0; more {
			w.put(blockStored, 3)
		} else {
			w.put(blockStored|final, 3)
		}
		w.align()
		w.put(uint64(len(part))|uint64(^uint16(len(part)))<<16, 32)
		w.to = append(w.to, part...)
	}
}
