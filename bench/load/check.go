package load

import (
	"bufio"
	"bytes"
	"io"
)

// A Check reads what a receiver wrote of a set's first messages and finds
// every difference.
type Check struct {
	Lines      int   // read
	Bytes      int64 // of text, line feeds included
	Unique     int   // different messages found whole
	Duplicates int   // messages found whole before
	Disorder   int   // messages that come after a later one of the same file
	Damaged    int   // lines that are no message of the set

	set  *Set
	seen []uint64 // a bit a number
}

// NewCheck makes a check of the first messages of a set.
func NewCheck(set *Set, messages int) *Check {
	return &Check{set: set, seen: make([]uint64, (messages+63)/64)}
}

// Read takes the text of one file, to its end.
func (c *Check) Read(r io.Reader) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	latest := -1
	for {
		line, err := lines.ReadSlice('\n')
		c.Bytes += int64(len(line))
		if len(line) > 0 {
			latest = c.line(line, latest)
		}
		switch err {
		case nil, bufio.ErrBufferFull: // a line so long is damaged, and so is its rest
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// line counts a line, latest being the highest number before it in its file,
// and returns the highest number with it.
func (c *Check) line(line []byte, latest int) int {
	c.Lines++
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	n, ours := c.set.Number(text)
	if !whole || !ours || n/64 >= len(c.seen) {
		c.Damaged++
		return latest
	}
	if n < latest {
		c.Disorder++
	}
	if bit := uint64(1) << (n % 64); c.seen[n/64]&bit != 0 {
		c.Duplicates++
	} else {
		c.seen[n/64] |= bit
		c.Unique++
	}
	return max(latest, n)
}
