package gzipwriter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
)

// ErrDamaged says that bytes are no whole gzip member, and not for want of
// more of them: no header, a broken deflate stream, a wrong checksum.
var ErrDamaged = errors.New("damaged gzip data")

// errShrunk is no damage: somebody truncated the file while it was read.
var errShrunk = errors.New("file became shorter while it was read")

// Member is one member of a file.
type Member struct {
	Offset int64 // of its first byte
	Length int64 // bytes, header and trailer included
	Text   int64 // bytes, inflated
	Ours   bool  // it has a valid LB field
	Info   Info  // what that says, else zero
}

// end is the offset of the byte after the member.
func (m *Member) end() int64 { return m.Offset + m.Length }

// Scanner walks over the members of a file. Where a member of ours is followed
// by another whole one it is hopped over by its length; others, and the last of
// ours, are inflated and their checksums compared: after a power failure the
// end of a file may have its full length and hold zeros. Memory is fixed,
// whatever the file says. Not for concurrent use.
type Scanner struct {
	size   int64
	member Member
	end    int64
	err    error

	// checkFrom is the offset from which members of ours are inflated too.
	checkFrom int64

	r       io.ReaderAt
	ahead   [4 + headerLen]byte // what peek read last: ISIZE and a header
	aheadAt int64
	aheadN  int

	in   input
	buf  *bufio.Reader // of in; its own end is where the inflater stopped
	gz   gzip.Reader
	text []byte // inflated, thrown away
}

const (
	readBuffer = 64 << 10
	textBuffer = 32 << 10
)

// ScanMembers walks over the first size bytes of r. r is only read during
// [Scanner.Next].
func ScanMembers(r io.ReaderAt, size int64) *Scanner {
	s := &Scanner{size: size, checkFrom: math.MaxInt64, r: r}
	s.in = input{r: r, size: size}
	s.buf = bufio.NewReaderSize(&s.in, readBuffer)
	s.text = make([]byte, textBuffer)
	return s
}

// Next steps to the next whole member, and reports false where there is none.
func (s *Scanner) Next() bool {
	if s.err != nil || s.end >= s.size {
		return false
	}
	m, err := s.read(s.end)
	if err != nil {
		s.err = fmt.Errorf("gzip member at offset %d: %w", s.end, err)
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
	m, err := s.claim(off)
	if err != nil {
		return Member{}, err
	}
	if m.Ours {
		if m.Length > s.size-off {
			return Member{}, io.ErrUnexpectedEOF
		}
		if hop, err := s.canHop(&m); hop || err != nil {
			return m, err
		}
	}
	length, text, err := s.inflate(off)
	if m.Ours && err == io.ErrUnexpectedEOF {
		// All its bytes are there: its stream is broken and ran on.
		err = fmt.Errorf("%w: deflate stream without an end", ErrDamaged)
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

// claim returns what the header at off says, unproved. Of another's member,
// and of one of ours whose LB field is broken, only the offset is known.
func (s *Scanner) claim(off int64) (Member, error) {
	b, err := s.peek(off, headerLen)
	if err != nil {
		return Member{}, err
	}
	if n := min(len(b), len(magic)); string(b[:n]) != magic[:n] {
		return Member{}, fmt.Errorf("%w: no member begins here", ErrDamaged)
	}
	m := Member{Offset: off}
	var h header
	if h.parse(b) {
		m.Ours, m.Info = true, h.info
		m.Length, m.Text = int64(h.length), int64(h.text)
	}
	return m, nil
}

// canHop says whether m, which lies within the file, need not be inflated: its
// trailer agrees with its header, and another member of ours follows whose
// bytes are all there. Either would hardly be so if a length were wrong.
func (s *Scanner) canHop(m *Member) (bool, error) {
	if m.Offset >= s.checkFrom {
		return false, nil
	}
	b, err := s.peek(m.end()-4, len(s.ahead))
	if err != nil {
		return false, err
	}
	var next header
	return le.Uint32(b) == uint32(m.Text) &&
		next.parse(b[4:]) && int64(next.length) <= s.size-m.end(), nil
}

// peek returns n bytes at off, fewer at the end of the file, valid until the
// next call. One read serves a member's trailer and the header after it.
func (s *Scanner) peek(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), s.size-off))
	if i := off - s.aheadAt; i >= 0 && i+int64(n) <= int64(s.aheadN) {
		return s.ahead[i : i+int64(n)], nil
	}
	s.aheadN = 0
	got, err := s.r.ReadAt(s.ahead[:n], off)
	if got < n {
		return nil, readError(err)
	}
	s.aheadAt, s.aheadN = off, n
	return s.ahead[:n], nil
}

// inflate reads the member at off to its end, and returns its length and that
// of its text.
func (s *Scanner) inflate(off int64) (length, text int64, err error) {
	// Row by row, what is buffered already is used on.
	if s.in.next-int64(s.buf.Buffered()) != off {
		s.in.next = off
		s.buf.Reset(&s.in)
	}
	if err = s.gz.Reset(s.buf); err != nil {
		return 0, 0, s.reason(err)
	}
	s.gz.Multistream(false)
	for {
		n, err := s.gz.Read(s.text)
		text += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, s.reason(err)
		}
	}
	return s.in.next - int64(s.buf.Buffered()) - off, text, nil
}

// reason tells a torn member, a damaged one and a failed read apart.
func (s *Scanner) reason(err error) error {
	switch {
	case s.in.err != nil:
		return s.in.err
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// input reads a file from next to size, and keeps the error of reading, which
// an inflater may wrap or replace.
type input struct {
	r    io.ReaderAt
	next int64
	size int64
	err  error
}

func (in *input) Read(p []byte) (int, error) {
	if in.next >= in.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), in.size-in.next)]
	n, err := in.r.ReadAt(p, in.next)
	in.next += int64(n)
	if n > 0 {
		return n, nil // an error comes again at the next call
	}
	in.err = readError(err)
	return 0, in.err
}

// readError is the error of a read within the file that got too little.
func readError(err error) error {
	if err == nil || err == io.EOF {
		return errShrunk
	}
	return err
}
