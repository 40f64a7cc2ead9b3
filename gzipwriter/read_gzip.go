package gzipwriter

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	readBuffer = 64 << 10
	textBuffer = 32 << 10
)

// gzipMembers reads members of gzip (RFC 1952).
type gzipMembers struct {
	src *source

	ahead   [4 + headerLen]byte // what peek read last: ISIZE and a header
	aheadAt int64
	aheadN  int

	in   input
	buf  *bufio.Reader // of in; its own end is where the inflater stopped
	gz   gzip.Reader
	text []byte // inflated
}

func newGzipMembers(src *source) *gzipMembers {
	g := &gzipMembers{src: src, in: input{src: src, end: unknownSize}, text: make([]byte, textBuffer)}
	g.buf = bufio.NewReaderSize(&g.in, readBuffer)
	return g
}

func (g *gzipMembers) format() Format { return Gzip }

// claim knows only the offset of another's member, and of one of ours whose LB
// field is damaged.
func (g *gzipMembers) claim(off int64) (Member, error) {
	b, err := g.peek(off, headerLen)
	if err != nil {
		return Member{}, err
	}
	if n := min(len(b), len(magic)); string(b[:n]) != magic[:n] {
		return Member{}, errNoMember
	}
	m := Member{Offset: off}
	var h header
	if h.parse(b) {
		m.Ours, m.Info = true, h.info
		m.Length, m.Text = int64(h.length), int64(h.text)
	} else {
		m.Spoilt = spoilt(b)
	}
	return m, nil
}

// canHop is true if the member's trailer agrees with its header, and another
// member of ours follows whose bytes are all there. Either would hardly be so
// if a length were wrong.
func (g *gzipMembers) canHop(m Member) (bool, error) {
	if g.src.file == nil {
		return false, nil // a stream has to be read anyway
	}
	b, err := g.peek(m.end()-4, len(g.ahead))
	if err != nil {
		return false, err
	}
	var next header
	return le.Uint32(b) == uint32(m.Text) &&
		next.parse(b[4:]) && int64(next.length) <= g.src.size-m.end(), nil
}

// peek returns n bytes at off, fewer at the end of the source, valid until the
// next call. One read serves a member's trailer and the header after it.
func (g *gzipMembers) peek(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), g.src.size-off))
	if i := off - g.aheadAt; i >= 0 && i+int64(n) <= int64(g.aheadN) {
		return g.ahead[i : i+int64(n)], nil
	}
	g.aheadN = 0
	n, err := g.src.readFull(g.ahead[:n], off)
	if err != nil {
		return nil, err
	}
	g.aheadAt, g.aheadN = off, n
	return g.ahead[:n], nil
}

func (g *gzipMembers) inflate(off int64, out io.Writer) (length, text int64, err error) {
	// Row by row, what is buffered already is used on.
	if g.in.next-int64(g.buf.Buffered()) != off || g.in.err != nil {
		g.in.next, g.in.err = off, nil
		g.buf.Reset(&g.in)
	}
	if err = g.gz.Reset(g.buf); err != nil {
		return 0, 0, g.reason(err)
	}
	g.gz.Multistream(false)
	for {
		n, err := g.gz.Read(g.text)
		text += int64(n)
		if n > 0 && out != nil {
			if _, err := out.Write(g.text[:n]); err != nil {
				return 0, 0, err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, 0, g.reason(err)
		}
	}
	return g.in.next - int64(g.buf.Buffered()) - off, text, nil
}

// reason tells a torn member, a damaged one and a failed read apart.
func (g *gzipMembers) reason(err error) error {
	switch {
	case g.in.err != nil:
		return g.in.err
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

func (g *gzipMembers) find(off, end int64) (int64, error) {
	return search(g.src, g, magic, off, end)
}

// errNoMember is of what does not begin as a member does.
var errNoMember = fmt.Errorf("%w: no member begins here", ErrDamaged)

// search is [codec.find] by the bytes that every member begins with.
func search(src *source, c codec, magic string, off, end int64) (int64, error) {
	buf := make([]byte, readBuffer)
	for off = max(off, src.base); off < end; off = max(off, src.base) {
		n, err := src.readFull(buf, off)
		if err != nil {
			return 0, err
		}
		at, err := searchIn(src, c, magic, buf[:n], off, end)
		if at >= 0 || err != nil {
			return at, err
		}
		if n < len(buf) {
			break
		}
		// The magic may begin in the last bytes of this piece.
		off += int64(n - len(magic) + 1)
	}
	return -1, nil
}

// searchIn is search within b, which was read at off.
func searchIn(src *source, c codec, magic string, b []byte, off, end int64) (int64, error) {
	for from := 0; ; from++ {
		i := bytes.Index(b[from:], []byte(magic))
		if i < 0 || off+int64(from+i) >= end {
			return -1, nil
		}
		from += i
		m, err := c.claim(off + int64(from))
		if err == nil {
			_, err = prove(src, c, m, nil)
		}
		if err == nil {
			return off + int64(from), nil
		}
		if !flawed(err) && err != errForgotten {
			return 0, err // nothing about this place is known
		}
	}
}
