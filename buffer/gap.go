package buffer

// Gap is a number of messages that were dropped for one key.
type Gap struct {
	Messages int
	Reason   string // of the newest
}

// gap is what is to be told in two places: in the Dropped of one batch, and
// by whoever calls Told.
type gap struct {
	Gap
	fresh int // messages that no batch's Dropped holds yet
}

// Drop notes that n messages for key were dropped, to be told before the
// next one that is taken. An open batch ends here, so that the gap lies
// between two batches. The caller is between Begin and End.
func (b *Buffer) Drop(key []byte, n int, reason string) {
	if bt := b.find(key); bt != nil {
		b.sealLocked(bt, ByPressure)
	}
	g := b.gaps[string(key)]
	if g == nil {
		if len(b.gaps) >= maxReached {
			clear(b.gaps) // the totals are the caller's, and stay right
		}
		g = new(gap)
		b.gaps[string(key)] = g
	}
	g.Messages += n
	g.Reason = reason
	g.fresh += n
}

// Gap returns what was dropped for key and not yet told. The caller is
// between Begin and End.
func (b *Buffer) Gap(key []byte) (Gap, bool) {
	if len(b.gaps) == 0 {
		return Gap{}, false
	}
	g := b.gaps[string(key)]
	if g == nil {
		return Gap{}, false
	}
	return g.Gap, true
}

// Told forgets the gap of key: the batch that is open now tells it. The
// caller is between Begin and End.
func (b *Buffer) Told(key []byte) { delete(b.gaps, string(key)) }
