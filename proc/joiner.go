package proc

import (
	"bytes"
	"regexp"
	"time"
)

// joiner puts lines together to records: a record begins with a line that
// matches start, or with the first line there is, and goes on to the next such
// line. It belongs to its reader.
type joiner struct {
	start   *regexp.Regexp
	timeout time.Duration // without a further line a record is over
	max     int           // bytes of a record, the last LF included
	reserve func(n int) bool
	release func(n int)
	next    func(Block) // borrows its block

	held  []byte    // owned, all of its memory reserved; lines of the record that is open
	since time.Time // when the last of them was read
	split bool      // a piece of this record went out already
}

func newJoiner(cfg LineConfig, next func(Block)) *joiner {
	return &joiner{
		start: cfg.Start, timeout: cfg.RecordTimeout, max: cfg.MaxLine + 1,
		reserve: cfg.Reserve, release: cfg.Release, next: next,
	}
}

// take is a handler of blocks. Records of one line that follow each other are
// passed on in one block, as they came. A piece of a line stands for itself.
func (j *joiner) take(b Block) {
	switch {
	case b.Partial:
		j.end()
		j.next(b)
	case b.Last && len(j.held) > 0 && !j.start.Match(b.Text):
		j.add(b.Text, b.Received)
		j.end()
	case b.Last:
		j.end()
		j.next(b)
	default:
		j.lines(b)
	}
}

// lines takes whole lines.
func (j *joiner) lines(b Block) {
	text := b.Text
	// text[run:record] is records of one line each that are still to be passed
	// on, text[record:] the open record, of which n lines were seen.
	run, record, n := 0, 0, 0
	for i := 0; i < len(text); {
		end := i + bytes.IndexByte(text[i:], '\n')
		if j.start.Match(text[i:end]) {
			if n > 1 || len(j.held) > 0 || j.split {
				j.pass(text[run:record], b)
				j.add(text[record:i], b.Received)
				j.end()
				run = i
			}
			record, n = i, 0
		}
		n++
		i = end + 1
	}
	j.pass(text[run:record], b)
	j.add(text[record:], b.Received)
}

// pass hands on records of one line each.
func (j *joiner) pass(text []byte, b Block) {
	if len(text) > 0 {
		j.next(Block{Text: text, Lines: bytes.Count(text, lf), Received: b.Received})
	}
}

// add makes lines part of the open record. What is longer than it may be, or
// than there is memory for, goes out in pieces of whole lines.
func (j *joiner) add(text []byte, received time.Time) {
	for len(text) > 0 {
		n := len(text)
		if room := j.max - len(j.held); n > room {
			n = bytes.LastIndexByte(text[:room], '\n') + 1
		}
		switch {
		case n > 0 && j.grow(n):
			j.held = append(j.held, text[:n]...)
			j.since = received
		case len(j.held) > 0:
			j.give(j.held, true)
			continue
		default: // no memory
			j.since = received
			j.give(text[:n], true)
		}
		text = text[n:]
	}
}

// end gives out the open record, if there is one.
func (j *joiner) end() {
	if len(j.held) > 0 {
		j.give(j.held, false)
	}
	j.split = false
}

// give hands on a record, or a piece of one that goes on.
func (j *joiner) give(text []byte, goesOn bool) {
	j.next(Block{Text: text, Lines: 1, Received: j.since, Record: true, Partial: goesOn || j.split})
	j.held = j.held[:0]
	j.split = goesOn
}

// grow sees to it that held has room for n bytes more.
func (j *joiner) grow(n int) bool {
	have := cap(j.held)
	if len(j.held)+n <= have {
		return true
	}
	want := min(max(len(j.held)+n, 2*have, 4096), max(j.max, len(j.held)+n))
	if j.reserve != nil && !j.reserve(want-have) {
		return false
	}
	j.held = append(make([]byte, 0, want), j.held...)
	return true
}

// expire gives out the record that no line came to for the timeout. It returns
// how long the one that is held may stay; 0: there is none.
func (j *joiner) expire(now time.Time) time.Duration {
	if len(j.held) == 0 {
		return 0
	}
	if left := j.timeout - now.Sub(j.since); left > 0 {
		return left
	}
	j.end()
	if cap(j.held) > minBuffer {
		j.free()
	}
	return 0
}

// finish gives out what is left, and the memory back.
func (j *joiner) finish() {
	j.end()
	j.free()
}

func (j *joiner) free() {
	if n := cap(j.held); n > 0 && j.release != nil {
		j.release(n)
	}
	j.held = nil
}
