package buffer

// Open is the number of open batches. The caller is between Begin and End.
func (b *Buffer) Open() int { return len(b.open) }

// cacheLine is what a processor fetches at once, in bytes.
const cacheLine = 64

// Look fetches what appends of up to size bytes to these keys will touch.
// Among thousands of open batches all of it is out of the processor's cache;
// asked for together, it comes at the same time. Seen tells which key is next.
// The caller is between Begin and End.
func (b *Buffer) Look(keys [][]byte, size int) {
	b.seen, b.seenAt = b.seen[:0], b.sequence
	for _, key := range keys {
		b.seen = append(b.seen, b.open[string(key)])
	}
	// Loads that do not need each other do not wait for each other, as far as
	// the processor looks ahead: so these loops are short.
	touched := b.touched
	for _, bt := range b.seen {
		if bt != nil {
			touched += byte(bt.Messages)
		}
	}
	for _, bt := range b.seen {
		if bt != nil && len(bt.data) < cap(bt.data) {
			touched += bt.data[:cap(bt.data)][len(bt.data)] + bt.entry.order
		}
	}
	for _, bt := range b.seen {
		if bt != nil {
			room := bt.data[len(bt.data):cap(bt.data)]
			for at := cacheLine; at < min(size, len(room)); at += cacheLine {
				touched += room[at]
			}
		}
	}
	b.touched = touched
}

// Seen says that the next append is to the key of this index of Look's.
func (b *Buffer) Seen(i int) {
	if bt := b.seen[i]; bt != nil && b.seenAt == b.sequence {
		b.last = bt
	}
}
