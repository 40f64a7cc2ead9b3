package proc

import (
	"bytes"
	"time"
)

// Lines are joined to records where they lie: a record begins with a line that
// matches Start, or with the first line there is, and goes on to the next such
// line. Of the text that is kept back, buf[start:mark] is the lines of the
// record that is open.

// join takes on the lines of buf[mark:to], each of up to MaxLine bytes. Records
// of one line that follow each other are handed out in one block.
func (l *lines) join(to int, now time.Time) {
	record, n := l.start, 0 // where the open record begins, and how many lines it has
	if l.mark > l.start || l.parted {
		n = 2 // it may be one, but stands for itself
	}
	for i := l.mark; i < to; {
		end := i + bytes.IndexByte(l.buf[i:to], '\n')
		if l.starts(l.buf[i:end]) {
			if n > 1 {
				l.give(Block{Text: l.buf[l.start:record], Received: now})
				if i > l.mark {
					l.joined = now
				}
				l.record(i)
			}
			record, n = i, 0
		}
		n++
		i = end + 1
	}
	l.give(Block{Text: l.buf[l.start:record], Received: now})
	l.mark, l.joined = to, now
	l.part(l.MaxLine + 1)
}

// starts reports whether a line, without its LF, begins a record.
func (l *lines) starts(line []byte) bool {
	if l.TrimCR {
		line = bytes.TrimSuffix(line, crlf[:1])
	}
	return l.Start.Match(line)
}

// record hands out the open record, whose lines end at an offset, in pieces if
// it is too long.
func (l *lines) record(to int) {
	l.mark = to
	l.part(l.MaxLine + 1)
	b := Block{Text: l.buf[l.start:to], Record: true, Partial: l.parted, Continues: l.parted, Received: l.joined}
	l.parted = false
	l.give(b)
}

// part hands out pieces of the open record, each of as many whole lines as it
// may have, until no more than some bytes of it are left.
func (l *lines) part(most int) {
	for l.mark-l.start > most {
		piece := l.buf[l.start:min(l.mark, l.start+l.MaxLine+1)]
		b := Block{Text: piece[:bytes.LastIndexByte(piece, '\n')+1], Record: true, Partial: true, Continues: l.parted, Received: l.joined}
		l.parted = true
		l.give(b)
	}
}

// expireRecord hands out the record that no line came to for RecordTimeout. It
// returns how long the one that is open may stay; 0: there is none.
func (l *lines) expireRecord(now time.Time) time.Duration {
	if l.mark == l.start {
		return 0
	}
	if left := l.RecordTimeout - now.Sub(l.joined); left > 0 {
		return left
	}
	l.record(l.mark)
	l.compact()
	return 0
}
