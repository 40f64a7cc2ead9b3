// Package report makes tables and a picture of what was measured.
package report

import (
	"math"
	"slices"
)

// A Sample is what one round measured of a row, by the keys of its columns.
type Sample map[string]float64

// median is the middle of values, or the mean of the two in the middle; NaN
// if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// ratio is the median of the rounds' ratios of one row to another: two rows
// of one round ran next to each other, so what the machine did to the round it
// did to both. A round that lacks either is left out.
func ratio(of, to *Row, key string) float64 {
	var ratios []float64
	for i := range min(len(of.Samples), len(to.Samples)) {
		a, has := of.Samples[i][key]
		b, had := to.Samples[i][key]
		if has && had && b != 0 {
			ratios = append(ratios, a/b)
		}
	}
	return median(ratios)
}
