package deflate

import (
	"math/bits"
	"slices"
)

// The longest codes, bits.
const (
	maxBits       = 15
	maxHeaderBits = 7
)

// code is a prefix code (RFC 1951 section 3.2.2) of an alphabet of which each
// symbol has been counted. The three slices are of its length.
type code struct {
	counts  []uint32 // below 1<<23
	lengths []uint8  // of codes, bits; 0 if the symbol does not occur
	codes   []uint16 // first bit of the code lowest

	order   []uint32 // symbols that occur, by count
	weights []uint32 // of nodes; then their parents, then their depths
}

func newCode(symbols int) *code {
	return &code{counts: make([]uint32, symbols), lengths: make([]uint8, symbols), codes: make([]uint16, symbols)}
}

const (
	orderShift = 9 // of a count in order; a symbol is below
	orderMask  = 1<<orderShift - 1
)

// fit makes the code that takes the fewest bits for the counts (Huffman's), or
// next to it where some codes would be longer than limit bits. Two symbols at
// least get one, since decoders may refuse a code of one.
func (c *code) fit(limit int) {
	c.order = c.order[:0]
	for s, n := range c.counts {
		if n > 0 {
			c.order = append(c.order, n<<orderShift|uint32(s))
		}
	}
	for s := 0; len(c.order) < 2; s++ {
		if c.counts[s] == 0 {
			c.order = append(c.order, uint32(s))
		}
	}
	slices.Sort(c.order)

	clear(c.lengths)
	n := 0
	for length, leaves := range c.leaves(limit) {
		for range leaves {
			c.lengths[c.order[len(c.order)-1-n]&orderMask] = uint8(length)
			n++
		}
	}
	c.assign()
}

// leaves returns how many codes there are of each length.
func (c *code) leaves(limit int) (leaves [maxBits + 1]int) {
	// Two queues, both ascending: the leaves, and the inner nodes in the order
	// in which they are made of the two least of both. Inner node i takes the
	// place of leaf i, which is used by then, and is replaced by the number of
	// its parent when it is used itself (Moffat and Katajainen 1995).
	w := c.weights[:0]
	for _, o := range c.order {
		w = append(w, o>>orderShift)
	}
	c.weights = w
	leaf, inner := 0, 0
	for made := range len(w) - 1 {
		sum := uint32(0)
		for range 2 {
			if inner == made || leaf < len(w) && w[leaf] <= w[inner] {
				sum += w[leaf]
				leaf++
			} else {
				sum += w[inner]
				w[inner] = uint32(made)
				inner++
			}
		}
		w[made] = sum
	}

	// From the root down. A node that is not inner is a leaf; those below the
	// limit are moved up to it, which takes more room than there is.
	root := len(w) - 2
	w[root] = 0
	var nodes [64]int
	nodes[0] = 1
	for i := root - 1; i >= 0; i-- {
		w[i] = w[w[i]] + 1
		nodes[w[i]]++
	}
	room := 1 << limit // in codes of limit bits
	for depth := 1; depth < len(nodes); depth++ {
		length := min(depth, limit)
		n := 2*nodes[depth-1] - nodes[depth]
		leaves[length] += n
		room -= n << (limit - length)
	}
	// Room is made by moving the leaf next above the limit down by one, and a
	// leaf at the limit beside it.
	for ; room < 0; room++ {
		length := limit - 1
		for leaves[length] == 0 {
			length--
		}
		leaves[length]--
		leaves[length+1] += 2
		leaves[limit]--
	}
	return leaves
}

// assign gives the symbols codes of the lengths they have.
func (c *code) assign() {
	var next [maxBits + 2]uint16
	for _, length := range c.lengths {
		next[length+1]++
	}
	next[1] = 0
	for length := 1; length <= maxBits; length++ {
		next[length+1] = (next[length] + next[length+1]) << 1
	}
	for s, length := range c.lengths {
		if length > 0 {
			c.codes[s] = bits.Reverse16(next[length]) >> (16 - length)
			next[length]++
		}
	}
}

// size is how many bits the symbols take that this code has counted, written
// with the code as.
func (c *code) size(as *code) (bits int) {
	for s, n := range c.counts {
		bits += int(n) * int(as.lengths[s])
	}
	return bits
}

// used is how many symbols there are, up to the last that occurs.
func (c *code) used() int {
	n := len(c.lengths)
	for c.lengths[n-1] == 0 {
		n--
	}
	return n
}

// The codes of fixed blocks (RFC 1951 section 3.2.6), two of whose literals
// and two of whose distances never occur.
var (
	fixedLiterals = fixedCode(288, func(symbol int) uint8 {
		switch {
		case symbol < 144:
			return 8
		case symbol < 256:
			return 9
		case symbol < 280:
			return 7
		}
		return 8
	})
	fixedDistances = fixedCode(32, func(int) uint8 { return 5 })
)

func fixedCode(symbols int, length func(symbol int) uint8) *code {
	c := newCode(symbols)
	for i := range c.lengths {
		c.lengths[i] = length(i)
	}
	c.assign()
	return c
}
