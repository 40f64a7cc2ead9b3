package gzipwriter

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrDamaged says that bytes are no whole member, and not for want of more of
// them: no header, a broken stream, a wrong checksum.
var ErrDamaged = errors.New("damaged data")

// Member is one member of a file: of gzip, a frame of zstd, or the whole of a
// plain text.
type Member struct {
	Offset int64 // of its first byte
	Length int64 // bytes, header and trailer included
	Text   int64 // bytes, inflated
	Ours   bool  // it has a valid LB field
	Spoilt bool  // its LB field was damaged; all else of it may be whole
	Info   Info  // what a valid LB field says, else zero
}

// end is the offset of the byte after the member.
func (m *Member) end() int64 { return m.Offset + m.Length }

// codec finds and reads the members of one format.
//
// The errors say what is wrong with a member: io.ErrUnexpectedEOF where the
// source ends within it, [ErrDamaged] where its bytes are wrong. All others are
// those of reading, or of writing text, and say nothing about it.
type codec interface {
	format() Format

	// claim returns what the header at off says, unproved.
	claim(off int64) (Member, error)

	// canHop says whether a member that lies within the source is followed by
	// another, and so need not be inflated to be believed.
	canHop(m Member) (bool, error)

	// inflate reads the member at off to its end and compares its checksum.
	// Its text goes to out in pieces, which out does not keep; nil: nowhere.
	inflate(off int64, out io.Writer) (length, text int64, err error)

	// find returns where the next whole member begins, from off on and before
	// end, or -1.
	find(off, end int64) (int64, error)
}

// Scanner walks over the members of a file up to the first damage. Where a
// member of known length is followed by another it is hopped over; others, and
// the last, are inflated and their checksums compared: after a power failure
// the end of a file may have its full length and hold zeros. Memory is fixed,
// whatever the file says. Not for concurrent use. See [Reader] for the text,
// and for what is behind a damage.
type Scanner struct {
	src    *source
	codec  codec
	member Member
	end    int64
	err    error

	// checkFrom is the offset from which all members are inflated.
	checkFrom int64
}

// ScanMembers walks over the first size bytes of r, which are gzip or zstd. r
// is only read during [Scanner.Next].
func ScanMembers(r io.ReaderAt, size int64) *Scanner {
	src := &source{file: r, size: size}
	s := &Scanner{src: src, codec: newGzipMembers(src), checkFrom: math.MaxInt64}
	var head [len(zstdMagic)]byte
	n, err := src.readFull(head[:], 0)
	if isFrame(head[:n]) {
		s.codec = newZstdFrames(src)
	}
	s.err = err
	return s
}

// Next steps to the next whole member, and reports false where there is none.
func (s *Scanner) Next() bool {
	if s.err != nil || s.end >= s.src.size {
		return false
	}
	m, err := s.read(s.end)
	if err != nil {
		s.err = fmt.Errorf("member at offset %d: %w", s.end, err)
		return false
	}
	s.member, s.end = m, m.end()
	return true
}

// Member is the member that Next stepped to.
func (s *Scanner) Member() Member { return s.member }

// End is the offset after the last whole member so far.
func (s *Scanner) End() int64 { return s.end }

// Err is why the walk ended: nil at the end of a whole file,
// io.ErrUnexpectedEOF where the member at End is torn, [ErrDamaged] where what
// is there is no member (padding and garbage too); any other error is that of
// reading and says nothing about the file.
func (s *Scanner) Err() error { return s.err }

// read returns the whole member at off.
func (s *Scanner) read(off int64) (Member, error) {
	m, err := s.codec.claim(off)
	if err != nil {
		return Member{}, err
	}
	return pass(s.src, s.codec, m, off < s.checkFrom)
}

// pass returns a claimed member whole. It is inflated unless it may be, and
// can be, hopped over.
func pass(src *source, c codec, m Member, mayHop bool) (Member, error) {
	if mayHop && m.Length > 0 && m.Length <= src.size-m.Offset {
		if hop, err := c.canHop(m); hop || err != nil {
			return m, err
		}
	}
	return prove(src, c, m, nil)
}

// prove inflates a claimed member, gives its text to out, and returns it with
// its true lengths.
func prove(src *source, c codec, m Member, out io.Writer) (Member, error) {
	if m.Length > src.size-m.Offset {
		return Member{}, io.ErrUnexpectedEOF
	}
	length, text, err := c.inflate(m.Offset, out)
	if err == io.ErrUnexpectedEOF && m.Length > 0 && m.Length <= src.size-m.Offset {
		// All its bytes are there: its stream is broken and ran on.
		err = fmt.Errorf("%w: compressed data without an end", ErrDamaged)
	}
	if err != nil {
		return Member{}, err
	}
	if m.Ours && (length != m.Length || text != m.Text) {
		return Member{}, fmt.Errorf("%w: lengths differ from the LB field", ErrDamaged)
	}
	m.Length, m.Text = length, text
	return m, nil
}
