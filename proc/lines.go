package proc

import (
	"bytes"
	"regexp"
	"time"
)

const (
	defaultMaxLine = 1 << 20
	// minBuffer is what every reader holds, in bytes. What it needs beyond is
	// reserved first.
	minBuffer = 64 << 10
	// maxRead bounds one read: a batch's worth, which stays in the cache until
	// the handler has copied it. An emptied 1 MiB pipe costs four such reads.
	maxRead = 256 << 10
	// quietDrains in a row give the extra memory back. A loop parks after three
	// empty drains, so an idle pipe never sits on a large buffer.
	quietDrains = 3
)

// LineConfig says how text becomes lines.
type LineConfig struct {
	MaxLine        int           // bytes without the LF; a longer line is given out in pieces; 0: 1 MiB
	PartialTimeout time.Duration // text without LF is kept back at most this long; 0: until LF or the end
	TrimCR         bool          // take off the one CR before an LF

	// Start, unless it is nil, joins lines to records of up to MaxLine bytes: a
	// line that does not match it belongs to the record before, which is given
	// out when the next one starts, after RecordTimeout without a line, or at
	// the end.
	Start         *regexp.Regexp
	RecordTimeout time.Duration

	// Reserve is asked for n more bytes of memory beyond the first 64 KiB of a
	// reader, Release gets them back. Refused, a reader works with what it has
	// and gives a line out in pieces before MaxLine. Reserve may block; nil
	// grants everything.
	Reserve func(n int) bool
	Release func(n int)
}

// Block is what a reader hands out: either whole lines, each with its LF, or
// one piece of a line, or one record of several lines.
type Block struct {
	Text     []byte    // borrowed for the call
	Lines    int       // records in Text: its lines, or 1 for a piece or a record
	Received time.Time // when the last of Text was read

	// Partial says that Text is one piece of a line that was longer than
	// MaxLine or kept waiting for longer than PartialTimeout. The pieces of a
	// line in a row are the line: the last has its LF (and may be that alone),
	// the others have none.
	Partial bool
	// Last says that the stream ended within a line, and Text, which has no
	// LF, is the line or the last piece of it (empty, if all of it went out
	// before).
	Last bool
	// Record says that Text is one record, whatever LFs are in it; the last one
	// is its end. With Partial it is whole lines of one that was too long.
	Record bool
}

// lines assembles lines from reads (PARSING.md section 3). The text between
// two calls is the beginning of one line: it was searched for LF and is not
// searched again.
type lines struct {
	LineConfig
	handler  func(Block) // borrows its block; may block
	join     *joiner     // that handler leads to, or nil
	readSize int         // bytes that one read shall have room for under load

	buf   []byte    // owned; buf[:end] is kept back
	end   int       // at most MaxLine, and less than len(buf)
	since time.Time // when the first of buf[:end] was read
	split bool      // a piece of this line went out already
	quiet int       // drains in a row that the smallest buffer was enough for
}

// newLines makes an assembler for a pipe that holds size bytes.
func newLines(cfg LineConfig, size int, handler func(Block)) *lines {
	if cfg.MaxLine <= 0 {
		cfg.MaxLine = defaultMaxLine
	}
	l := &lines{
		LineConfig: cfg,
		handler:    handler,
		readSize:   min(max(size, minBuffer), maxRead),
		buf:        make([]byte, minBuffer),
	}
	if cfg.Start != nil {
		l.join = newJoiner(cfg, handler)
		l.handler = l.join.take
	}
	return l
}

// space is where the next read goes, never empty; it is valid until the next
// call of any method.
func (l *lines) space() []byte { return l.buf[l.end:] }

// fed takes the n bytes that were read into space at now, and hands out what
// they complete.
func (l *lines) fed(n int, now time.Time) {
	if l.end == 0 {
		l.since = now
	}
	read := l.buf[l.end : l.end+n]
	full := l.end+n == len(l.buf)
	done := 0
	if i := bytes.LastIndexByte(read, '\n'); i >= 0 {
		done = l.end + i + 1
		l.whole(l.buf[:done], now)
	}
	l.end += n
	for l.end-done > l.MaxLine { // no LF is left
		l.piece(l.buf[done:done+l.MaxLine], now)
		done += l.MaxLine
	}
	l.drop(done, now)

	if l.end > len(l.buf)/2 || full && len(l.buf) < l.readSize {
		l.grow()
	}
	if l.end == len(l.buf) {
		l.cut(now)
	}
}

// drop takes the first n bytes away. Each byte is moved once: a text without
// LF already lies in front.
func (l *lines) drop(n int, now time.Time) {
	if n > 0 {
		l.end = copy(l.buf, l.buf[n:l.end])
		l.since = now
	}
}

// whole hands out text that ends with LF: in one block, but for lines that
// are too long or were begun by a piece.
func (l *lines) whole(text []byte, now time.Time) {
	for len(text) > 0 {
		if n := l.fitting(text); n > 0 {
			l.give(Block{Text: text[:n], Received: now})
			text = text[n:]
			continue
		}
		window := text[:min(len(text), l.MaxLine+1)]
		n := bytes.IndexByte(window, '\n') + 1
		if n == 0 {
			n = l.MaxLine
			l.piece(text[:n], now)
		} else {
			l.give(Block{Text: text[:n], Partial: true, Received: now})
			l.split = false
		}
		text = text[n:]
	}
}

// fitting is how many bytes of text, which ends with LF, are whole lines of up
// to MaxLine bytes. It looks at the end of every MaxLine bytes only: lines
// that lie between two LFs so close need no look.
func (l *lines) fitting(text []byte) int {
	if l.split {
		return 0
	}
	n := 0
	for n < len(text) {
		rest := text[n:]
		if len(rest) <= l.MaxLine+1 {
			return len(text)
		}
		i := bytes.LastIndexByte(rest[:l.MaxLine+1], '\n')
		if i < 0 {
			break
		}
		n += i + 1
	}
	return n
}

// piece hands out text of a line that goes on. It never ends with a CR that
// TrimCR would have to take off: a byte that is no LF is known to follow.
func (l *lines) piece(text []byte, now time.Time) {
	l.give(Block{Text: text, Partial: true, Received: now})
	l.split = true
}

// cut hands out what is kept back, before its end is known.
func (l *lines) cut(now time.Time) {
	n := l.end
	if l.TrimCR && l.buf[n-1] == '\r' {
		n-- // an LF may follow
	}
	if n > 0 {
		l.piece(l.buf[:n], now)
	}
	l.end = copy(l.buf, l.buf[n:l.end])
	l.since = now
}

// give counts and hands over one block.
func (l *lines) give(b Block) {
	if l.TrimCR {
		b.Text = trimCR(b.Text)
	}
	b.Lines = 1
	if !b.Partial && !b.Last {
		b.Lines = bytes.Count(b.Text, lf)
	}
	l.handler(b)
}

var (
	lf   = []byte{'\n'}
	crlf = []byte{'\r', '\n'}
)

// trimCR takes the CR of every CR LF out of text, in place.
func trimCR(text []byte) []byte {
	i := bytes.Index(text, crlf)
	if i < 0 {
		return text
	}
	kept := i
	for rest := text[i+1:]; ; {
		i = bytes.Index(rest, crlf)
		if i < 0 {
			return text[:kept+copy(text[kept:], rest)]
		}
		kept += copy(text[kept:], rest[:i])
		rest = rest[i+1:]
	}
}

// waits reports whether something is kept back: then expire has to be called.
func (l *lines) waits() bool { return l.end > 0 || l.join != nil && len(l.join.held) > 0 }

// expire hands out what was kept back for too long. It returns how long what
// is kept back now may stay; 0 for ever.
func (l *lines) expire(now time.Time) time.Duration {
	left := l.expirePartial(now)
	if l.join == nil {
		return left
	}
	record := l.join.expire(now)
	if left == 0 || record > 0 && record < left {
		return record
	}
	return left
}

// expirePartial is expire of a line whose end has not come.
func (l *lines) expirePartial(now time.Time) time.Duration {
	if l.end == 0 || l.PartialTimeout <= 0 {
		return 0
	}
	if now.Sub(l.since) >= l.PartialTimeout {
		l.cut(now)
		if l.end == 0 {
			return 0
		}
	}
	return max(l.PartialTimeout-now.Sub(l.since), time.Nanosecond)
}

// finish hands out the rest at the end of the stream and gives the memory
// back. The assembler cannot be used after it.
func (l *lines) finish(now time.Time) {
	if l.end > 0 || l.split {
		l.give(Block{Text: l.buf[:l.end], Partial: l.split, Last: true, Received: now})
	}
	if l.join != nil {
		l.join.finish()
	}
	l.release(len(l.buf) - minBuffer)
	l.end, l.buf = 0, nil
}

// drained is told how many bytes a drain took in all, and makes the buffer
// small again when it has been too large for a while.
func (l *lines) drained(n int) {
	if len(l.buf) == minBuffer {
		return
	}
	if n+l.end > minBuffer/2 {
		l.quiet = 0
		return
	}
	if l.quiet++; l.quiet >= quietDrains {
		l.quiet = 0
		l.shrink()
	}
}

// grow doubles the buffer, up to a line of MaxLine and a read after it.
func (l *lines) grow() {
	size := min(2*len(l.buf), max(l.MaxLine+l.readSize, minBuffer))
	n := size - len(l.buf)
	if n <= 0 || (l.Reserve != nil && !l.Reserve(n)) {
		return
	}
	l.buf = append(make([]byte, 0, size), l.buf[:l.end]...)[:size]
}

// shrink goes back to the smallest buffer; what is kept back must fit.
func (l *lines) shrink() {
	n := len(l.buf) - minBuffer
	l.buf = append(make([]byte, 0, minBuffer), l.buf[:l.end]...)[:minBuffer]
	l.release(n)
}

func (l *lines) release(n int) {
	if n > 0 && l.Release != nil {
		l.Release(n)
	}
}
