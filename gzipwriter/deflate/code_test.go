package deflate

import (
	"container/heap"
	"math/rand/v2"
	"testing"
)

// weights is a heap.
type weights []int

func (w weights) Len() int           { return len(w) }
func (w weights) Less(i, j int) bool { return w[i] < w[j] }
func (w weights) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *weights) Push(x any)        { *w = append(*w, x.(int)) }
func (w *weights) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// least is how many bits the best prefix code takes: the sum of all inner
// nodes of Huffman's tree.
func least(counts []uint32) (bits int) {
	var w weights
	for _, n := range counts {
		if n > 0 {
			heap.Push(&w, int(n))
		}
	}
	for len(w) > 1 {
		sum := heap.Pop(&w).(int) + heap.Pop(&w).(int)
		bits += sum
		heap.Push(&w, sum)
	}
	return bits
}

// checkPrefixCode has the codes use up all room, and none begin another.
func checkPrefixCode(t *testing.T, c *code, limit int) {
	t.Helper()
	room := 1 << limit
	for s, length := range c.lengths {
		if int(length) > limit {
			t.Fatalf("symbol %d has %d bits", s, length)
		}
		if c.counts[s] > 0 && length == 0 {
			t.Fatalf("symbol %d occurs and has no code", s)
		}
		if length > 0 {
			room -= 1 << (limit - int(length))
		}
		for other, l := range c.lengths[:s] {
			if length == 0 || l == 0 {
				continue
			}
			mask := uint16(1)<<min(length, l) - 1
			if c.codes[s]&mask == c.codes[other]&mask {
				t.Fatalf("the codes of %d and %d begin alike", s, other)
			}
		}
	}
	if room != 0 {
		t.Fatalf("%d codes of %d bits are unused", room, limit)
	}
}

func TestFit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	fibonacci := func(n int) []uint32 {
		counts := []uint32{1, 1}
		for len(counts) < n {
			counts = append(counts, counts[len(counts)-1]+counts[len(counts)-2])
		}
		return counts
	}
	tests := [][]uint32{{0, 0, 0}, {0, 0, 5}, {7, 0, 0}, {1, 1}, {1, 1 << 20}, {3, 3, 3, 3, 3}, fibonacci(7), fibonacci(16), fibonacci(17), fibonacci(30)}
	for range 300 {
		counts := make([]uint32, 2+r.IntN(literalCodes-1))
		for i := range counts {
			if r.IntN(3) > 0 {
				counts[i] = r.Uint32N(1 << r.IntN(16))
			}
		}
		tests = append(tests, counts)
	}
	for _, counts := range tests {
		c := newCode(len(counts))
		copy(c.counts, counts)
		for _, limit := range []int{maxHeaderBits, maxBits} {
			used := 0
			for _, n := range counts {
				if n > 0 {
					used++
				}
			}
			if used > 1<<limit {
				continue
			}
			c.fit(limit)
			checkPrefixCode(t, c, limit)
			longest := uint8(0)
			for _, length := range c.lengths {
				longest = max(longest, length)
			}
			size, best := c.size(c), least(counts)
			if used == 1 {
				best = size // of one bit each, and nothing is better
			}
			if int(longest) < limit && size != best {
				t.Fatalf("%v: %d bits, the best code takes %d", counts, size, best)
			}
			if size > best*105/100 && limit == maxBits {
				t.Fatalf("%v: %d bits within a limit of %d, without it %d", counts, size, limit, best)
			}
		}
	}
}

// TestFixedCodes has the codes of RFC 1951 section 3.2.6.
func TestFixedCodes(t *testing.T) {
	reversed := func(code uint16, length int) (r uint16) {
		for range length {
			r = r<<1 | code&1
			code >>= 1
		}
		return r
	}
	for symbol, want := range map[int]struct {
		code   uint16
		length int
	}{0: {0b00110000, 8}, 143: {0b10111111, 8}, 144: {0b110010000, 9}, 255: {0b111111111, 9}, 256: {0, 7}, 279: {0b0010111, 7}, 280: {0b11000000, 8}, 287: {0b11000111, 8}} {
		if c := fixedLiterals; c.codes[symbol] != reversed(want.code, want.length) || int(c.lengths[symbol]) != want.length {
			t.Errorf("%d: %b of %d bits", symbol, c.codes[symbol], c.lengths[symbol])
		}
	}
	if c := fixedDistances; c.codes[29] != reversed(29, 5) || c.lengths[29] != 5 {
		t.Errorf("distance 29: %b of %d bits", c.codes[29], c.lengths[29])
	}
}

// TestSymbols has the tables of RFC 1951 section 3.2.5.
func TestSymbols(t *testing.T) {
	bases := []uint32{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	for d := uint32(1); d <= maxDistance; d++ {
		code, extra := distanceCode(d)
		if bases[code]+extra != d || extra >= 1<<distanceBits(int(code)) {
			t.Fatalf("distance %d: code %d, extra %d", d, code, extra)
		}
	}
	bases = []uint32{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	extraBits := []uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	for i, l := range lengthCodes {
		if bases[l.code]+uint32(l.extra) != uint32(i+minLength) || l.bits != extraBits[l.code] || l.extra>>l.bits != 0 {
			t.Errorf("length %d: %+v", i+minLength, l)
		}
	}
	if l := lengthCodes[maxLength-minLength]; l.code != 28 {
		t.Errorf("length 258: %+v", l)
	}
}
