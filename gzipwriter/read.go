package gzipwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Format is how a file holds its text.
type Format int

const (
	Plain Format = iota // as it is
	Gzip                // members (RFC 1952)
	Zstd                // frames (RFC 8878)
)

func (f Format) String() string { return [...]string{"plain", "gzip", "zstd"}[f] }

const (
	// holdText is how much text of a member is kept back until its checksum
	// has been compared, bytes. What is longer is given out before.
	holdText = 8 << 20

	// sniffLen is how far a file that begins like no format, and like no text,
	// is searched for a whole member.
	sniffLen = 1 << 20
)

// Damage is the error of bytes that are no whole member. Reading goes on after
// them.
type Damage struct {
	Offset int64
	Length int64 // bytes
	Text   int64 // bytes of text that were given out of them all the same
	Tail   bool  // they are the last: no whole member follows
	Err    error // what is wrong: io.ErrUnexpectedEOF where only an end is missing
}

// Reason is what is wrong, in words.
func (d *Damage) Reason() string {
	if errors.Is(d.Err, io.ErrUnexpectedEOF) {
		return "the end is missing"
	}
	return strings.TrimPrefix(d.Err.Error(), ErrDamaged.Error()+": ")
}

func (d *Damage) Error() string {
	s := fmt.Sprintf("%d bytes lost at offset %d: %s", d.Length, d.Offset, d.Reason())
	if d.Text > 0 {
		s += fmt.Sprintf(" (the first %d bytes of their text were given out)", d.Text)
	}
	return s
}

func (d *Damage) Unwrap() error { return d.Err }

// Reader reads the members of a file or stream of any [Format], each one only
// if its text is asked for, and goes on behind what is damaged. Its memory is
// bounded whatever the file says: some 10 MiB, and what a frame of zstd asks
// for, up to 128 MiB. Not for concurrent use.
type Reader struct {
	src   *source
	codec codec // nil until the first bytes are known

	at      int64  // where the next member begins, or what is pending
	member  Member // at at, if pending; else the last
	pending bool   // neither read nor passed over yet
	ended   bool   // what is at at is a damaged tail

	hold    hold
	growing bool // a tail that is no whole member yet may become one
}

// NewReader reads the first size bytes of a file.
func NewReader(file io.ReaderAt, size int64) *Reader {
	return &Reader{src: &source{file: file, size: size}}
}

// NewStreamReader reads what cannot be read twice, such as a pipe. It keeps up
// to 32 MiB of it, to find the next whole member after a damage.
func NewStreamReader(stream io.Reader) *Reader {
	return &Reader{src: &source{stream: stream, size: unknownSize}}
}

// Format tells what the file is, by its first bytes. Before the first Next it
// is Plain.
func (r *Reader) Format() Format {
	if r.codec == nil {
		return Plain
	}
	return r.codec.format()
}

// Next steps to the next member, and tells of it what its header says. A
// member that was not read by Copy is passed over, without inflating it where
// its header tells its length. The error is io.EOF at the end, a *[Damage],
// after which Next can be called again, or one of reading the file.
func (r *Reader) Next() (Member, error) {
	if err := r.detect(); err != nil {
		return Member{}, err
	}
	if r.pending {
		m, err := pass(r.src, r.codec, r.member, true)
		if err = r.passed(m, err); err != nil {
			return Member{}, err
		}
	}
	if r.ended || r.codec == nil {
		return Member{}, io.EOF
	}
	r.hold.begin(nil, false)
	var one [1]byte
	if n, err := r.src.readFull(one[:], r.at); n == 0 {
		if err == nil {
			err = io.EOF
		}
		return Member{}, err
	}
	m, err := r.codec.claim(r.at)
	if err != nil {
		return Member{}, r.damage(err)
	}
	r.member, r.pending = m, true
	return m, nil
}

// Copy gives the text of the member that Next stepped to to out, and returns
// the member with its true lengths. Text of up to 8 MiB is given out whole or
// not at all, with one exception: of another's member that lacks its end, the
// last of a file, whatever can be inflated. The error is a *[Damage], that of
// out, or one of reading.
func (r *Reader) Copy(out io.Writer) (Member, error) {
	if !r.pending {
		return Member{}, errors.New("gzipwriter: Copy without Next")
	}
	var m Member
	var err error
	if r.growing && r.Format() != Plain && !(r.member.Ours && r.member.Text <= holdText) {
		// It may be too long to be held, and come whole at a later try.
		_, err = prove(r.src, r.codec, r.member, nil)
	}
	r.hold.begin(out, r.Format() == Plain)
	if err == nil {
		m, err = prove(r.src, r.codec, r.member, &r.hold)
	}
	if err == nil {
		err = r.hold.flush()
	}
	if r.hold.err != nil {
		return Member{}, r.hold.err
	}
	return m, r.passed(m, err)
}

// passed steps behind the pending member, or to what is wrong with it.
func (r *Reader) passed(m Member, err error) error {
	r.pending = false
	if err != nil {
		return r.damage(err)
	}
	r.member, r.at = m, m.end()
	return nil
}

// damage makes a *Damage of what is at r.at, and steps behind it. Any other
// error it returns as it is.
func (r *Reader) damage(reason error) error {
	if !flawed(reason) {
		return reason
	}
	next, err := r.codec.find(r.at+1, unknownSize)
	if err != nil {
		return err
	}
	d := &Damage{Offset: r.at, Tail: next < 0, Err: reason}
	if d.Tail {
		next, r.ended = r.src.size, true
		if reason == io.ErrUnexpectedEOF && !r.member.Ours && !r.growing {
			err = r.hold.flush()
		}
	} else {
		r.at = next
	}
	d.Length, d.Text = next-d.Offset, r.hold.given
	r.hold.begin(nil, false)
	if err != nil {
		return err
	}
	return d
}

// CopyText gives out the text of all members that are wanted (nil: all) by
// what their headers say. Each damage is told to lost, and reading goes on. A
// line that ends in a damage gets a line feed, so that it is not taken for the
// beginning of the next. The error is that of out, or one of reading.
func (r *Reader) CopyText(out io.Writer, want func(Member) bool, lost func(*Damage)) error {
	for {
		m, err := r.Next()
		if err == nil && (want == nil || want(m)) {
			_, err = r.Copy(out)
		}
		var damage *Damage
		switch {
		case err == nil:
		case err == io.EOF:
			return nil
		case !errors.As(err, &damage):
			return err
		case damage.Tail:
			lost(damage)
		default:
			lost(damage)
			if err := r.hold.endLine(out); err != nil {
				return err
			}
		}
	}
}

// detect finds out what the file is. A growing file without enough bytes stays
// without a codec.
func (r *Reader) detect() error {
	if r.codec != nil {
		return nil
	}
	var head [256]byte
	n, err := r.src.readSome(head[:], 0)
	if err == nil && n < len(zstdMagic) {
		n, err = r.src.readFull(head[:len(zstdMagic)], 0)
	}
	if err != nil && err != io.EOF {
		return err
	}
	if begun := string(head[:n]); r.growing && n < len(magic) &&
		(strings.HasPrefix(magic, begun) || strings.HasPrefix(zstdMagic, begun)) {
		return nil
	}
	if r.codec, err = r.byMagic(head[:n]); err == nil && r.codec == nil {
		r.codec = &plainText{r.src}
	}
	return err
}

// byMagic returns the codec of a file that begins with head, nil for text.
// The first header may be damaged too: so what does not look like text is
// searched for a whole member. A member within something that begins as text
// does not count, since a message may hold anything.
func (r *Reader) byMagic(head []byte) (codec, error) {
	gzip, zstd := newGzipMembers(r.src), newZstdFrames(r.src)
	switch n := len(head); {
	case n > 1 && string(head[:min(n, len(magic))]) == magic[:min(n, len(magic))]:
		return gzip, nil
	case isFrame(head):
		return zstd, nil
	case !hasControls(head):
		return nil, nil
	}
	for _, c := range []codec{gzip, zstd} {
		at, err := c.find(0, sniffLen)
		if err != nil {
			return nil, err
		}
		if at >= 0 && hasControls(head[:min(int64(len(head)), at)]) {
			return c, nil
		}
	}
	return nil, nil
}

// hasControls says whether b holds a control character that is rare in text.
func hasControls(b []byte) bool {
	return bytes.IndexFunc(b, func(c rune) bool {
		return c < ' ' && (c < '\t' || c > '\r') && c != 0x1b
	}) >= 0
}

// hold keeps the text of a member back until it is known to be right, unless
// it is long.
type hold struct {
	out   io.Writer
	plain bool // nothing is kept back
	held  []byte
	given int64 // bytes that went to out, of this member
	open  bool  // the last line that went to out lacks its end
	err   error // of out
}

func (h *hold) begin(out io.Writer, plain bool) {
	h.out, h.plain, h.held, h.given, h.err = out, plain, h.held[:0], 0, nil
}

func (h *hold) Write(p []byte) (int, error) {
	if !h.plain && h.given == 0 && len(h.held)+len(p) <= holdText {
		h.held = append(h.held, p...)
		return len(p), nil
	}
	if err := h.flush(); err != nil {
		return 0, err
	}
	return len(p), h.give(p)
}

// flush gives out what is held.
func (h *hold) flush() error {
	p := h.held
	h.held = h.held[:0]
	return h.give(p)
}

func (h *hold) give(p []byte) error {
	if len(p) == 0 || h.err != nil {
		return h.err
	}
	_, h.err = h.out.Write(p)
	h.given += int64(len(p))
	h.open = p[len(p)-1] != '\n'
	return h.err
}

// endLine ends a line that is open.
func (h *hold) endLine(out io.Writer) error {
	if !h.open {
		return nil
	}
	h.open = false
	_, err := out.Write([]byte{'\n'})
	return err
}

// plainText takes a text as one member, from wherever it is read on.
type plainText struct{ src *source }

func (p *plainText) format() Format { return Plain }

func (p *plainText) claim(off int64) (Member, error) {
	if p.src.size == unknownSize {
		return Member{Offset: off}, nil
	}
	return Member{Offset: off, Length: p.src.size - off, Text: p.src.size - off}, nil
}

func (p *plainText) canHop(Member) (bool, error) { return true, nil }

func (p *plainText) inflate(off int64, out io.Writer) (length, text int64, err error) {
	buf := make([]byte, readBuffer)
	for at := off; ; {
		n, err := p.src.readSome(buf, at)
		if err == io.EOF {
			return at - off, at - off, nil
		}
		if err != nil {
			return 0, 0, err
		}
		at += int64(n)
		if out != nil {
			if _, err := out.Write(buf[:n]); err != nil {
				return 0, 0, err
			}
		}
	}
}

func (p *plainText) find(off, _ int64) (int64, error) { return off, nil }
