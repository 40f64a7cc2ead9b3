package deflate

// Block types (RFC 1951 section 3.2.3), the bit of the final block below them.
const (
	blockFinal   = 1
	blockStored  = 0 << 1
	blockFixed   = 1 << 1
	blockDynamic = 2 << 1
)

// block writes text, of which the tokens and the histograms are, in the
// shortest of the three ways.
func (e *Encoder) block(text []byte, tokens []token, final bool) {
	extra := e.count()
	e.literals.fit(maxBits)
	e.distances.fit(maxBits)
	e.header.describe(e.literals, e.distances)
	dynamic := e.header.size() + e.literals.size(e.literals) + e.distances.size(e.distances) + extra
	fixed := e.literals.size(fixedLiterals) + e.distances.size(fixedDistances) + extra

	last := uint64(0)
	if final {
		last = blockFinal
	}
	literals, distances := e.literals, e.distances
	switch {
	case storedSize(len(text)) < min(dynamic, fixed):
		e.out.stored(text, last)
		return
	case fixed <= dynamic:
		e.out.put(blockFixed|last, 3)
		literals, distances = fixedLiterals, fixedDistances
	default:
		e.out.put(blockDynamic|last, 3)
		e.header.write(&e.out)
	}
	e.encoding.use(literals, distances)
	e.encoding.write(&e.out, tokens)
	e.out.put(uint64(literals.codes[endOfBlock]), uint(literals.lengths[endOfBlock]))
}

// count sums up the histograms by code, and returns how many extra bits there
// are.
func (e *Encoder) count() (extra int) {
	literals, distances := e.literals.counts, e.distances.counts
	clear(literals[firstLength:])
	for i, l := range lengthCodes {
		literals[i] = e.firsts[i] + e.seconds[i]
		n := e.firsts[lengthSymbol+i]
		literals[firstLength+int(l.code)] += n
		extra += int(n) * int(l.bits)
	}
	literals[endOfBlock] = 1
	for i := range distances {
		distances[i] = e.seconds[distanceSymbol+i]
		extra += int(distances[i]) * int(distanceBits(i))
	}
	return extra
}

// encoding has the bits of each symbol of a token. The low 8 tell how many
// they are, from bit 8 on they are themselves: a code, and the extra bits of a
// length. The extra bits of a distance are in the token; from bit 24 on is how
// many there are with them.
type encoding struct {
	firsts, seconds [symbols]uint32
}

const (
	bitsShift  = 8
	bitsMask   = 1<<bitsShift - 1
	codeMask   = 1<<16 - 1
	totalShift = 24
)

// use takes over the codes of literals and lengths, and of distances.
func (e *encoding) use(literals, distances *code) {
	for i, l := range lengthCodes {
		n := uint32(literals.lengths[i])
		e.firsts[i] = uint32(literals.codes[i])<<bitsShift | n
		e.seconds[i] = e.firsts[i] | n<<totalShift

		length := firstLength + int(l.code)
		n = uint32(literals.lengths[length])
		e.firsts[lengthSymbol+i] = (uint32(literals.codes[length])|uint32(l.extra)<<n)<<bitsShift | n + uint32(l.bits)
	}
	for i := range distanceCodes {
		n := uint32(distances.lengths[i])
		e.seconds[distanceSymbol+i] = uint32(distances.codes[i])<<bitsShift | n | (n+distanceBits(i))<<totalShift
	}
}

// write appends tokens.
func (e *encoding) write(w *bitWriter, tokens []token) {
	to, bits, n := w.to, w.bits, w.n
	for _, t := range tokens {
		first := e.firsts[t&symbolMask]
		bits |= uint64(first>>bitsShift) << (n & 63)
		n += uint(first & bitsMask)
		second := e.seconds[t>>secondShift&symbolMask]
		value := uint64(second>>bitsShift&codeMask) | uint64(t>>extraShift)<<(second&bitsMask&63)
		bits |= value << (n & 63)
		n += uint(second >> totalShift)
		to, bits, n = flush(to, bits, n)
	}
	w.to, w.bits, w.n = to, bits, n
}
