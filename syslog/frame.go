package syslog

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Framing is how a stream is cut into frames (RFC 6587 section 3.4).
type Framing uint8

const (
	FramingAuto  Framing = iota // the first frame of a connection decides
	FramingOctet                // a decimal count of bytes and a space before each frame
	FramingLF                   // LF, CR LF, or NUL after each frame
)

// maxCountDigits is how long the count of a frame may be.
const maxCountDigits = 10

// FramingError is a count that is none. Nothing after it can be told apart.
type FramingError struct {
	Count []byte // up to the first byte that does not belong
}

func (e *FramingError) Error() string { return fmt.Sprintf("bad octet count %q", e.Count) }

// Frame is one message of a stream, without its framing.
type Frame struct {
	Text      []byte // in the framer's buffer, borrowed until its next Space
	Truncated bool   // longer than the limit, or a counted frame that the end of the stream cut short
	Partial   bool   // a piece of a frame that was given out before its end was seen
}

// Framer cuts a stream into frames; it does no I/O. Its buffer holds what has
// arrived and was not yet given out: at most one unfinished frame up to the
// limit, and one read. What a count promises reserves nothing.
//
// Whatever pieces the input arrives in, the frames are the same. A cycle is
//
//	n := read(f.Space(size))
//	f.Filled(n)
//	for frame, ok := f.Next(); ok; frame, ok = f.Next() { … }
type Framer struct {
	limit int // bytes of a frame that are kept
	framerState

	buf     []byte
	r, w    int // buf[r:w] was not given out yet
	scanned int // bytes of that which hold no end of a line; the next may be a NUL whose follower decides
	noLF    int // bytes of that which hold no LF

	ended bool
	err   *FramingError
}

// framerState is what was found out about a stream before what is held of it.
type framerState struct {
	framing  Framing
	count    int64 // octet: bytes that are missing from the current frame; 0: its count is next
	skip     int64 // octet: bytes to throw away, the rest of a truncated frame
	skipLine bool  // LF: throw away up to the end of the line
	partial  bool  // a piece of the current frame was given out
	begun    bool  // the first byte was looked at
}

// NewFramer makes a framer that keeps at most limit bytes of a frame.
func NewFramer(framing Framing, limit int) *Framer {
	return &Framer{limit: limit, framerState: framerState{framing: framing}}
}

// Space returns room for at least n bytes, to read into. It moves the
// unfinished frame, so frames given out before end with it. A buffer that a
// long frame has left behind is given up.
func (f *Framer) Space(n int) []byte {
	held := f.buf[f.r:f.w]
	if size := f.SpaceSize(n); size != len(f.buf) {
		f.buf = make([]byte, size)
	}
	f.r, f.w = 0, copy(f.buf, held)
	return f.buf[f.w:]
}

// use goes on in a buffer that begins with what is held.
func (f *Framer) use(buf []byte) { f.buf, f.r, f.w = buf, 0, f.Held() }

// first is the first byte of the stream; false if it is not there yet, or was
// asked for before.
func (f *Framer) first() (b byte, ok bool) {
	if f.begun || f.Held() == 0 {
		return 0, false
	}
	f.begun = true
	return f.buf[f.r], true
}

// SpaceSize is the memory in bytes that the framer will have after Space(n).
// Where a frame is growing it doubles, so that not every read copies it.
func (f *Framer) SpaceSize(n int) int {
	need := f.Held() + n
	if need > len(f.buf) || len(f.buf) > 2*need {
		return need + f.Held()
	}
	return len(f.buf)
}

// Filled says that n bytes were read into the space.
func (f *Framer) Filled(n int) { f.w += n }

// End says that no more will be read: what is left is Next's last frame.
func (f *Framer) End() { f.ended = true }

// Held is how many bytes of an unfinished frame are kept, once Next has no more.
func (f *Framer) Held() int { return f.w - f.r }

// Err is the framing error after which Next gives out nothing any more.
func (f *Framer) Err() error {
	if f.err == nil {
		return nil
	}
	return f.err
}

// Next gives out the next whole frame; false when more input is needed, or
// after a framing error.
func (f *Framer) Next() (Frame, bool) {
	if f.framing == FramingAuto && !f.decide() {
		return Frame{}, false
	}
	if f.framing == FramingOctet {
		return f.nextCounted()
	}
	return f.nextLine()
}

// Flush gives out what is held of a frame whose end does not come. What
// follows of the frame is a message of its own, or several, marked partial
// too, each up to the limit: the rest of the count, or up to the end of the
// line. Bytes that may turn out to be framing, or the beginning of a
// character, stay. A connection of which nothing is known yet is LF-framed
// from here on.
func (f *Framer) Flush() (Frame, bool) {
	if f.framing == FramingAuto && f.Held() > 0 {
		f.framing = FramingLF
	}
	text := f.buf[f.r:f.w]
	switch {
	case f.framing == FramingOctet && f.count == 0, f.skip > 0, f.skipLine:
		return Frame{}, false
	case f.framing == FramingLF && bytes.HasSuffix(text, cr), f.framing == FramingLF && bytes.HasSuffix(text, nul):
		text = text[:len(text)-1]
	}
	text = wholeRunes(text)
	if len(text) == 0 {
		return Frame{}, false
	}
	f.consume(len(text))
	if f.framing == FramingOctet {
		f.count -= int64(len(text)) // more than the text: Next gives out a whole one
	}
	f.partial = true
	return Frame{Text: text, Partial: true}, true
}

var cr, nul = []byte{'\r'}, []byte{0}

// decide looks at the first frame for "[1-9][0-9]{0,9} SP <" and a digit,
// and waits for more as long as what is there is a beginning of that.
func (f *Framer) decide() bool {
	in := f.buf[f.r:f.w]
	digits := 0
	for digits < len(in) && digits <= maxCountDigits && isDigit(in[digits]) {
		digits++
	}
	rest := in[digits:]
	counted := digits <= maxCountDigits && (len(in) == 0 || in[0] != '0') && (digits > 0 || len(in) == 0)
	for i := 0; counted && i < 3 && i < len(rest); i++ {
		counted = i == 0 && rest[i] == ' ' || i == 1 && rest[i] == '<' || i == 2 && isDigit(rest[i])
	}
	switch {
	case !counted || f.ended && len(rest) < 3:
		f.framing = FramingLF
	case len(rest) >= 3:
		f.framing = FramingOctet
	}
	return f.framing != FramingAuto
}

func (f *Framer) nextCounted() (Frame, bool) {
	if f.skip > 0 {
		n := int(min(f.skip, int64(f.Held())))
		f.consume(n)
		f.skip -= int64(n)
	}
	if f.skip > 0 || f.count == 0 && !f.readCount() {
		return Frame{}, false
	}
	in := f.buf[f.r:f.w]
	n := int(min(f.count, int64(f.limit)))
	frame := Frame{Partial: f.partial}
	switch {
	case len(in) >= n:
		frame.Text = in[:n]
		if f.skip = f.count - int64(n); f.skip > 0 {
			frame.Text, frame.Truncated = wholeRunes(in[:n]), true
		}
	case f.ended && len(in) > 0:
		n = len(in)
		frame.Text, frame.Truncated = in, true
	default:
		return Frame{}, false
	}
	f.consume(n)
	f.count, f.partial = 0, false
	return frame, true
}

// readCount takes a count and its space off the input.
func (f *Framer) readCount() bool {
	if f.err != nil {
		return false
	}
	in, count := f.buf[f.r:f.w], int64(0)
	for i, c := range in {
		switch {
		case isDigit(c) && i < maxCountDigits && (i > 0 || c != '0'):
			count = 10*count + int64(c-'0')
		case c == ' ' && i > 0:
			f.consume(i + 1)
			f.count = count
			return true
		default:
			f.err = &FramingError{Count: bytes.Clone(in[:i+1])}
			return false
		}
	}
	return false
}

func (f *Framer) nextLine() (Frame, bool) {
	for {
		text, size, found := f.lineEnd()
		switch {
		case !found && f.skipLine:
			f.consume(f.scanned)
			return Frame{}, false
		case !found && !f.tooLong():
			return Frame{}, false
		case !found:
			frame := f.line(f.limit + 1)
			f.consume(f.limit)
			f.skipLine = true
			return frame, true
		}
		frame := f.line(text)
		skip := f.skipLine || text == 0
		f.consume(size)
		f.skipLine, f.partial = false, false
		if !skip {
			return frame, true
		}
	}
}

// line is the frame of the first n bytes of the input.
func (f *Framer) line(n int) Frame {
	frame := Frame{Text: f.buf[f.r : f.r+min(n, f.limit)], Partial: f.partial, Truncated: n > f.limit}
	if frame.Truncated {
		frame.Text = wholeRunes(frame.Text)
	}
	return frame
}

// tooLong says whether the unfinished line is over the limit whatever comes
// next: one CR, or a NUL, may be its end and not part of it.
func (f *Framer) tooLong() bool {
	over := f.Held() - f.limit
	last := f.w - 1
	return over > 1 || over == 1 && f.buf[last] != '\r' && f.buf[last] != 0
}

// lineEnd finds the end of the line: the length of its text, and that with
// its end. A line feed ends a line, and so does a NUL before "<", a digit or
// the end of the stream, as old senders write it. What was searched is not
// searched again.
func (f *Framer) lineEnd() (text, size int, found bool) {
	in := f.buf[f.r:f.w]
	from := max(f.scanned, f.noLF)
	lf, until := bytes.IndexByte(in[from:], '\n'), len(in)
	if lf >= 0 {
		lf += from
		until = lf
	}
	f.noLF = until
	for at := f.scanned; ; at++ {
		i := bytes.IndexByte(in[at:until], 0)
		if i < 0 {
			break
		}
		at += i
		if last := at+1 == len(in); last && !f.ended {
			f.scanned = at
			return 0, 0, false
		} else if last || in[at+1] == '<' || isDigit(in[at+1]) {
			return at, at + 1, true
		}
	}
	if lf >= 0 {
		return len(bytes.TrimSuffix(in[:lf], cr)), lf + 1, true
	}
	f.scanned = len(in)
	return len(in), len(in), f.ended && len(in) > 0
}

// consume takes n bytes off the input.
func (f *Framer) consume(n int) {
	f.r += n
	f.scanned = max(0, f.scanned-n)
	f.noLF = max(0, f.noLF-n)
}

// wholeRunes takes off the end of b what is the beginning of a UTF-8
// character and no more: at most three bytes. Other bytes stay, valid or not.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-3; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}
