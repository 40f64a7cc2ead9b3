package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestStepsFollowEachOther(t *testing.T) {
	for i := range len(Histogram{}.counts) {
		if got := step(upper(i)); got != i {
			t.Fatalf("the highest value of step %d, %d, is in step %d", i, upper(i), got)
		}
		if got := step(upper(i) + 1); got != i+1 {
			t.Fatalf("the value after step %d is in step %d", i, got)
		}
	}
	if got, last := step(math.MaxInt64), len(Histogram{}.counts)-1; got != last {
		t.Errorf("the longest duration is in step %d, want %d", got, last)
	}
}

func TestQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var h Histogram
	for range 100_000 {
		d := time.Duration(math.Exp(random.Float64() * 18)) // 1 ns to 65 ms
		all = append(all, d)
		h.Add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.001, 0.5, 0.99, 0.999, 1} {
		exact := float64(all[max(0, int(q*float64(len(all))+0.5)-1)])
		got := float64(h.Quantile(q))
		if got < exact || got > exact*(1+1.0/steps) {
			t.Errorf("quantile %v is %v, want %v or up to 1.6 %% more", q, got, exact)
		}
	}
	if h.Longest() != all[len(all)-1] || h.Quantile(1) != h.Longest() {
		t.Errorf("longest %v, and %v of all, want %v", h.Longest(), h.Quantile(1), all[len(all)-1])
	}
}

func TestHistogramOfLittle(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Longest() != 0 {
		t.Error("an empty histogram has durations")
	}
	h.Add(-time.Second) // a clock that was set
	h.Add(time.Hour)
	if h.Quantile(0.5) != 0 || h.Quantile(0.999) != time.Hour {
		t.Errorf("of 0 and an hour, p50 is %v and p99.9 %v", h.Quantile(0.5), h.Quantile(0.999))
	}
}
