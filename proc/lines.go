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
	// quietDrains in a row give the extra memory back, and if they were empty the
	// window. A loop parks after three empty drains, so an idle pipe never sits on
	// a large buffer, nor on any of the arena.
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

	// Window is asked for memory of at least n bytes that outlives the process.
	// Then Reserve is not. It may return nil. It does not go with a handler that
	// keeps text: what is kept there ends with the process.
	Window func(n int) Window
}

// Block is what a reader hands out: either whole lines, each with its LF, or
// one piece of a line, or one record of several lines.
type Block struct {
	Text     []byte    // borrowed for the call
	Lines    int       // records in Text: its lines, or 1 for a piece or a record
	Received time.Time // when the last of Text was read
	Window   Window    // that the block lay in; nil: in memory that ends with the process
	Before   int       // records of the block that were handed on before Text, by a handler that passes on parts

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
	// Continues says that Text goes on with a line, or a record, that an earlier
	// block began.
	Continues bool
}

// lines assembles lines from reads (PARSING.md section 3), and records of
// lines. The text between two calls is the lines of the record that is open, if
// any, and the beginning of one line: it was searched for LF and is not searched
// again.
type lines struct {
	LineConfig
	handler  func(Block) // borrows its block; may block
	readSize int         // bytes that one read shall have room for under load

	buf     []byte    // owned; buf[start:end] is kept back; nil until it is needed
	start   int       // 0, unless what is kept back is longer than what was before it
	mark    int       // where the line begins; start, unless a record is open
	end     int       // less than len(buf) between two calls
	small   int       // the smallest length of buf
	kept    kept      // what the window that buf lies in says of it
	since   time.Time // when the first of the line was read
	joined  time.Time // when the last of the open record was read
	split   bool      // a piece of this line went out already
	parted  bool      // a piece of the open record went out already
	trimmed []byte    // a text without CR
	quiet   int       // drains in a row that the smallest buffer was enough for
	empty   int       // drains in a row that brought nothing
}

// newLines makes an assembler for a pipe that holds size bytes.
func newLines(cfg LineConfig, size int, handler func(Block)) *lines {
	if cfg.MaxLine <= 0 {
		cfg.MaxLine = defaultMaxLine
	}
	return &lines{
		LineConfig: cfg,
		handler:    handler,
		readSize:   min(max(size, minBuffer), maxRead),
		empty:      quietDrains, // it parks at once if nothing comes
	}
}

// space is where the next read goes, never empty; it is valid until the next
// call of any method.
func (l *lines) space() []byte {
	if l.buf == nil {
		l.open()
	}
	return l.buf[l.end:]
}

// open takes the smallest buffer.
func (l *lines) open() {
	if l.Window != nil {
		if w := l.Window(minBuffer); w != nil {
			l.buf = l.kept.use(w)
			l.note()
		}
	}
	if l.buf == nil {
		l.buf = make([]byte, minBuffer)
	}
	l.small = len(l.buf)
}

// note records what is kept back, and that all behind it is zeros.
func (l *lines) note() {
	l.kept.record(keptRecord{start: uint32(l.start), end: uint32(l.end), flags: keptClean | l.flags()})
}

// flags are those of the state.
func (l *lines) flags() (f uint32) {
	if l.split {
		f |= keptSplit
	}
	if l.parted {
		f |= keptParted
	}
	return f
}

// fed takes the n bytes that were read into space at now, and hands out what
// they complete.
func (l *lines) fed(n int, now time.Time) {
	read := l.buf[l.end : l.end+n]
	full := l.end+n == len(l.buf)
	i := bytes.LastIndexByte(read, '\n')
	if l.mark == l.end || i >= 0 {
		l.since = now
	}
	to := l.end + i + 1
	l.end += n
	if i >= 0 {
		l.whole(to, now)
	}
	l.overlong(now)
	l.compact()

	if l.end-l.start > len(l.buf)/2 || full && len(l.buf) < l.readSize {
		l.grow()
	}
	if l.end == len(l.buf) {
		l.part(0)
		l.compact()
	}
	if l.end == len(l.buf) {
		l.cut(now)
	}
}

// compact moves what is kept back to the front, if there is room for it: as
// long as it lies where it was too, a kill cannot hit it half moved. Where there
// is none, more than half of the text is kept back, and the buffer grows before
// it is full.
func (l *lines) compact() {
	old, n := l.end, l.end-l.start
	if l.start > 0 && (n <= l.start || l.kept.window == nil) {
		copy(l.buf, l.buf[l.start:l.end])
		l.start, l.mark, l.end = 0, l.mark-l.start, n
	}
	if l.kept.window == nil {
		return
	}
	if l.end < old {
		l.kept.record(keptRecord{end: uint32(l.end), flags: l.flags()})
		clear(l.buf[l.end:old])
	}
	l.note()
}

// whole takes on the text up to an offset, which ends with LF. Lines that are
// too long, or were begun by a piece, are handed out by themselves; the others
// in one block, or as records.
func (l *lines) whole(to int, now time.Time) {
	for l.mark < to {
		text := l.buf[l.mark:to]
		n := l.fitting(text)
		switch {
		case n > 0 && l.Start != nil:
			l.join(l.mark+n, now)
		case n > 0:
			l.give(Block{Text: text[:n], Received: now})
		default:
			n = bytes.IndexByte(text[:min(len(text), l.MaxLine+1)], '\n') + 1
			if n == 0 {
				n = l.MaxLine
			}
			l.piece(l.mark+n, now)
		}
	}
}

// overlong hands out pieces of the line whose end is not there.
func (l *lines) overlong(now time.Time) {
	for l.end-l.mark > l.MaxLine {
		l.piece(l.mark+l.MaxLine, now)
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

// piece hands out the text up to an offset: of a line that goes on, or was
// begun by a piece. It never ends with a CR that TrimCR would have to take off:
// a byte that is no LF is known to follow.
func (l *lines) piece(to int, now time.Time) {
	l.record(l.mark)
	l.give(Block{Text: l.buf[l.start:to], Partial: true, Received: now})
	l.since = now
}

// cut hands out what is kept back, before its end is known.
func (l *lines) cut(now time.Time) {
	end := l.end
	if l.TrimCR && l.buf[end-1] == '\r' {
		end-- // an LF may follow
	}
	if end > l.mark {
		l.piece(end, now)
	}
	l.compact()
	l.since = now
}

// give counts and hands over one block, with which what is kept back begins;
// one without text only if it says that the stream has ended.
func (l *lines) give(b Block) {
	if len(b.Text) == 0 && !b.Last {
		return
	}
	end := l.start + len(b.Text)
	goesOn := b.Partial && !b.Record && !bytes.HasSuffix(b.Text, lf)
	l.begin(b, end)
	if l.TrimCR {
		b.Text = l.withoutCR(b.Text)
	}
	b.Lines, b.Window = 1, l.kept.window
	if !b.Partial && !b.Last && !b.Record {
		b.Lines = bytes.Count(b.Text, lf)
	}
	b.Continues = b.Continues || l.split
	l.handler(b)
	l.start, l.mark = end, max(l.mark, end)
	if b.Partial || b.Last {
		l.split = goesOn
	}
	if l.kept.window != nil {
		l.kept.record(keptRecord{start: uint32(l.start), end: uint32(l.end), flags: l.flags()})
		l.kept.window.End()
	}
}

// begin records that a block is being handed out.
func (l *lines) begin(b Block, end int) {
	if l.kept.window == nil || end == l.start {
		return
	}
	r := keptRecord{start: uint32(l.start), end: uint32(l.end), block: uint32(end), flags: l.flags()}
	if b.Partial {
		r.flags |= keptPartial
	}
	if b.Last {
		r.flags |= keptLast
	}
	if b.Record {
		r.flags |= keptJoined
	}
	l.kept.window.Begin()
	l.kept.record(r)
}

// withoutCR takes the CR of every CR LF out of a text: in place, or where the
// text outlives the process in a copy.
func (l *lines) withoutCR(text []byte) []byte {
	if l.kept.window != nil && bytes.Contains(text, crlf) {
		l.trimmed = append(l.trimmed[:0], text...)
		text = l.trimmed
	}
	return trimCR(text)
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
func (l *lines) waits() bool { return l.end > l.start }

// expire hands out what was kept back for too long. It returns how long what
// is kept back now may stay; 0 for ever.
func (l *lines) expire(now time.Time) time.Duration {
	left := l.expirePartial(now)
	record := l.expireRecord(now)
	if left == 0 || record > 0 && record < left {
		return record
	}
	return left
}

// expirePartial is expire of a line whose end has not come.
func (l *lines) expirePartial(now time.Time) time.Duration {
	if l.mark == l.end || l.PartialTimeout <= 0 {
		return 0
	}
	if now.Sub(l.since) >= l.PartialTimeout {
		l.cut(now)
		if l.mark == l.end {
			return 0
		}
	}
	return max(l.PartialTimeout-now.Sub(l.since), time.Nanosecond)
}

// finish hands out the rest at the end of the stream and gives the memory
// back. The assembler cannot be used after it.
func (l *lines) finish(now time.Time) {
	if l.end > l.mark && l.mark > l.start && !l.starts(l.buf[l.mark:l.end]) {
		l.mark, l.joined = l.end, now // the record's last line
	}
	l.record(l.mark)
	if l.end > l.start || l.split {
		l.give(Block{Text: l.buf[l.start:l.end], Partial: l.split, Last: true, Received: now})
	}
	if l.kept.window != nil {
		l.kept.window.Close() // nothing of it is wanted
	} else if l.buf != nil {
		l.release(len(l.buf) - minBuffer)
	}
	l.start, l.mark, l.end, l.buf, l.kept = 0, 0, 0, nil, kept{}
}

// drained is told how many bytes a drain took in all, and makes the buffer
// small again when it has been too large for a while.
func (l *lines) drained(n int) {
	if l.empty++; n > 0 {
		l.empty = 0
	}
	if w := l.kept.window; w != nil {
		switch {
		case l.empty >= quietDrains && !l.waits() && !l.split:
			w.Close()
			l.buf, l.small, l.kept = nil, 0, kept{}
		case w.IsOld():
			l.resize(len(w.Memory()), l.buf[l.start:l.end])
		}
	} else if l.Window != nil && l.buf != nil {
		l.moveIn()
	}
	if len(l.buf) == l.small {
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

// grow doubles the buffer, up to a line of MaxLine and a read after it, and a
// record before it.
func (l *lines) grow() {
	most := max(l.MaxLine+l.readSize, minBuffer)
	if l.Start != nil {
		most += l.MaxLine
	}
	if l.kept.window != nil {
		if len(l.buf) < most {
			l.resize(2*(len(l.buf)+keptSize), l.buf[l.start:l.end])
		}
		return
	}
	size := min(2*len(l.buf), most)
	n := size - len(l.buf)
	if n <= 0 || (l.Reserve != nil && !l.Reserve(n)) {
		return
	}
	l.buf = append(make([]byte, 0, size), l.buf[:l.end]...)[:size]
}

// resize goes on in another window of at least n bytes, which begins with a
// text and takes the place of this one and others. False: there is no room.
func (l *lines) resize(n int, text []byte, others ...Window) bool {
	w := l.kept.window.Resize(n)
	if w == nil {
		return false
	}
	old := l.kept.window
	l.buf = l.kept.use(w)
	l.start, l.mark, l.end = 0, l.mark-l.start, copy(l.buf, text)
	l.note()
	w.Replace(append(others, old)...)
	return true
}

// moveIn goes on in a window, now that there is room for one.
func (l *lines) moveIn() {
	w := l.Window(max(minBuffer, 2*(l.end-l.start)+keptSize))
	if w == nil {
		return
	}
	text, size := l.buf[l.start:l.end], len(l.buf)
	l.buf = l.kept.use(w)
	l.start, l.mark, l.end, l.small = 0, l.mark-l.start, copy(l.buf, text), minBuffer-keptSize
	l.note()
	l.release(size - minBuffer)
}

// shrink goes back to the smallest buffer; what is kept back must fit.
func (l *lines) shrink() {
	if l.kept.window != nil {
		l.resize(l.small+keptSize, l.buf[l.start:l.end])
		return
	}
	n := len(l.buf) - minBuffer
	l.buf = append(make([]byte, 0, minBuffer), l.buf[:l.end]...)[:minBuffer]
	l.release(n)
}

func (l *lines) release(n int) {
	if n > 0 && l.Release != nil {
		l.Release(n)
	}
}
