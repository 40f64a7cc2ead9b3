package gzipwriter

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/flate"

	"logboom/gzipwriter/deflate"
)

// MaxText is the longest text of one member, bytes. It keeps a member below
// what one write(2) takes on Linux (0x7ffff000 bytes) even if nothing in it
// can be compressed.
const MaxText = 1 << 30

var (
	// ErrEmpty is the error of a member without text: a file never holds one.
	ErrEmpty = errors.New("gzipwriter: no text")
	// ErrTooLong is the error of a text longer than [MaxText].
	ErrTooLong = errors.New("gzipwriter: text too long for one member")
)

// Writer compresses batches into members, one at a time, for any number of
// files. It keeps the memory of its longest member. Not for concurrent use.
type Writer struct {
	fast    *deflate.Encoder // of level 1; others have the library's
	library *flate.Writer
	member  output
	xfl     byte // RFC 1952 section 2.3.1: 4 fastest, 2 best, 0 between
}

// NewWriter makes a Writer of a compression level from 1 (fastest) to 9
// (smallest).
func NewWriter(level int) (*Writer, error) {
	if level < 1 || level > 9 {
		return nil, fmt.Errorf("gzipwriter: level %d is not from 1 to 9", level)
	}
	if level == 1 {
		return &Writer{fast: deflate.NewEncoder(), xfl: 4}, nil
	}
	w := new(Writer)
	var err error
	if w.library, err = flate.NewWriter(&w.member, level); err != nil {
		return nil, fmt.Errorf("gzipwriter: %w", err)
	}
	if level == 9 {
		w.xfl = 2
	}
	return w, nil
}

// Member returns text as one whole member. It keeps nothing of text; the
// member is the Writer's, valid until the next call. The error is [ErrEmpty]
// or [ErrTooLong]; the Writer can be used again after each.
func (w *Writer) Member(text []byte, info Info) ([]byte, error) {
	if len(text) == 0 {
		return nil, ErrEmpty
	}
	if len(text) > MaxText {
		return nil, ErrTooLong
	}
	// The header's place is kept free, since it tells the member's length.
	w.member = append(w.member[:0], make([]byte, headerLen)...)
	if err := w.deflate(text); err != nil {
		return nil, fmt.Errorf("gzipwriter: deflate: %w", err)
	}
	w.member = le.AppendUint32(w.member, crc32.ChecksumIEEE(text))
	w.member = le.AppendUint32(w.member, uint32(len(text)))

	h := header{length: uint32(len(w.member)), text: uint32(len(text)), info: info}
	h.put(w.member[:headerLen], w.xfl)
	return w.member, nil
}

// deflate appends the text, compressed, to the member.
func (w *Writer) deflate(text []byte) error {
	if w.fast != nil {
		w.member = w.fast.Append(w.member, text)
		return nil
	}
	w.library.Reset(&w.member)
	if _, err := w.library.Write(text); err != nil {
		return err
	}
	return w.library.Close()
}

// output gathers what the library gives out.
type output []byte

func (o *output) Write(p []byte) (int, error) {
	*o = append(*o, p...)
	return len(p), nil
}
