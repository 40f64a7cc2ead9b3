package deflate

// header describes the codes of a dynamic block (RFC 1951 section 3.2.7): how
// long the code of each symbol is, itself encoded.
type header struct {
	code                *code
	literals, distances int // codes described
	lengths             []uint8
	items               []headerItem
}

// headerItem is a symbol of the header's code in its low 5 bits, and above
// them what its extra bits are.
type headerItem uint16

const itemShift = 5

// Symbols of the header's code: up to 15 a length itself, then
const (
	repeat      = 16 // the one before, 3 to 6 times
	zeros       = 17 // 3 to 10 times 0
	manyZeros   = 18 // 11 to 138 times 0
	headerCodes = 19
)

var headerBits = [headerCodes]uint{repeat: 2, zeros: 3, manyZeros: 7}

// headerOrder is the order in which the lengths of the header's own code are
// written.
var headerOrder = [headerCodes]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// describe makes the header of two codes.
func (h *header) describe(literals, distances *code) {
	h.literals, h.distances = literals.used(), distances.used()
	h.lengths = append(h.lengths[:0], literals.lengths[:h.literals]...)
	h.lengths = append(h.lengths, distances.lengths[:h.distances]...)
	h.items = h.items[:0]
	for rest := h.lengths; len(rest) > 0; {
		length, run := rest[0], 1
		for run < len(rest) && rest[run] == length {
			run++
		}
		rest = rest[run:]
		if length > 0 {
			h.items = append(h.items, headerItem(length))
			run--
		}
		h.repeat(length, run)
	}

	clear(h.code.counts)
	for _, item := range h.items {
		h.code.counts[item.symbol()]++
	}
	h.code.fit(maxHeaderBits)
}

// repeat adds run more lengths like the last one, or zeros.
func (h *header) repeat(length uint8, run int) {
	for run > 0 {
		symbol, least, most := repeat, 3, 6
		switch {
		case length == 0 && run > 10:
			symbol, least, most = manyZeros, 11, 138
		case length == 0:
			symbol, least, most = zeros, 3, 10
		}
		if run < least {
			h.items = append(h.items, headerItem(length))
			run--
			continue
		}
		n := min(run, most)
		h.items = append(h.items, headerItem(symbol|(n-least)<<itemShift))
		run -= n
	}
}

func (i headerItem) symbol() int { return int(i & (1<<itemShift - 1)) }

// ownLengths is how many lengths of the header's own code are written.
func (h *header) ownLengths() int {
	n := headerCodes
	for n > 4 && h.code.lengths[headerOrder[n-1]] == 0 {
		n--
	}
	return n
}

// size is the length of the header, bits.
func (h *header) size() int {
	size := 5 + 5 + 4 + 3*h.ownLengths() + h.code.size(h.code)
	for symbol, bits := range headerBits {
		size += int(h.code.counts[symbol]) * int(bits)
	}
	return size
}

func (h *header) write(w *bitWriter) {
	own := h.ownLengths()
	w.put(uint64(h.literals-firstLength), 5)
	w.put(uint64(h.distances-1), 5)
	w.put(uint64(own-4), 4)
	for _, symbol := range headerOrder[:own] {
		w.put(uint64(h.code.lengths[symbol]), 3)
	}
	for _, item := range h.items {
		symbol := item.symbol()
		w.put(uint64(h.code.codes[symbol]), uint(h.code.lengths[symbol]))
		w.put(uint64(item>>itemShift), headerBits[symbol])
	}
}
