package buffer

import (
	"cmp"
	"slices"
	"time"
)

// relieve seals open batches when memory runs low, once, until it has
// recovered: so a slow sink leads to fuller batches, not to many small ones.
// Only where it gets worse, and it is not the sink that holds the memory, are
// more sealed.
func (b *Buffer) relieve() {
	left, used := b.share.balance()
	switch all := left + used; {
	case !b.strain && left < all/4, left < all/8 && b.held > used/2:
		b.strain = true
		b.sealHeaviest()
	case b.strain:
		b.strain = left < all/2
	}
}

// sealHeaviest seals the open batches with the most bytes for the longest
// time, until more than half of all open text is sealed. For this a batch is
// a sixteenth of its time older than it is, or else one old line would
// outweigh a page of new ones.
func (b *Buffer) sealHeaviest() {
	type candidate struct {
		*Batch
		weight float64 // bytes × seconds
	}
	var all []candidate
	total := 0
	now := time.Now()
	for bt := b.byBirth.first; bt != nil; bt = bt.links[openBatches].next {
		age := now.Sub(bt.First) + b.limits.Flush/16
		all = append(all, candidate{bt, float64(len(bt.data)) * age.Seconds()})
		total += len(bt.data)
	}
	slices.SortStableFunc(all, func(x, y candidate) int { return cmp.Compare(y.weight, x.weight) })
	sealed := 0
	for _, bt := range all {
		if sealed > total/2 {
			break
		}
		sealed += len(bt.data)
		b.sealLocked(bt.Batch, ByPressure)
	}
}

// Behind reports whether batches are sealed faster than they are done: those
// that are not done take up over a quarter of what is free beside them.
func (b *Buffer) Behind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	left, used := b.share.balance()
	return used-b.held > left/4
}
