package load

import (
	"math/bits"
	"time"
)

const (
	stepBits = 6 // a power of two of nanoseconds is cut into 64 steps: 1.6 %
	steps    = 1 << stepBits
)

// A Histogram counts durations to within 1.6 % in fixed memory. The longest
// is exact.
type Histogram struct {
	counts  [(64 - stepBits) * steps]uint32
	total   uint64
	longest time.Duration
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.counts[step(uint64(max(d, 0)))]++
	h.total++
	h.longest = max(h.longest, d)
}

// Longest is the longest duration added; 0 if none was.
func (h *Histogram) Longest() time.Duration { return h.longest }

// Quantile is the duration that a part q (0 to 1) of all does not exceed; 0
// if there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(h.total)+0.5))
	for i, n := range h.counts {
		if rank <= uint64(n) {
			return min(time.Duration(upper(i)), h.longest)
		}
		rank -= uint64(n)
	}
	return h.longest
}

// step is where v nanoseconds are counted: values below 64 one by one, then 64
// steps for each power of two.
func step(v uint64) int {
	if v < steps {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - stepBits
	return (shift+1)*steps + int(v>>shift) - steps
}

// upper is the highest value that is counted in a step.
func upper(i int) uint64 {
	if i < steps {
		return uint64(i)
	}
	shift := i/steps - 1
	return uint64(i%steps+steps+1)<<shift - 1
}
