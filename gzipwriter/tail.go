package gzipwriter

import (
	"bytes"
	"errors"
	"io"
)

// tailStep is how far before its end a file is looked at first for its last
// lines, bytes. A member of 256 KiB of text has some 50 KiB.
const tailStep = 64 << 10

// LastLines makes the next call of [Reader.Next] step to the member in which
// the last n lines of the file begin, or to one before it, and returns how
// many line feeds of the text from there on have to be left out. A last line
// without a line feed is a line.
//
// It looks for whole members from the end backwards, ever farther, since
// reading headers from the beginning would cost a read for each of them, of
// which 1 GiB of text has thousands, on cold pages all over the disk; near the
// end are the very bytes that have to be inflated anyway. Another's single
// member has to be inflated as a whole, twice, but not kept.
func (r *Reader) LastLines(n int64) (skip int64, err error) { return r.lastLines(n, tailStep) }

func (r *Reader) lastLines(n, step int64) (skip int64, err error) {
	if err := r.detect(); err != nil || r.codec == nil {
		return 0, err
	}
	size := r.src.size
	for ; ; step *= 4 {
		from := int64(0)
		if step < size {
			if from, err = r.codec.find(size-step, size); err != nil {
				return 0, err
			}
		}
		if from < 0 {
			continue
		}
		lines, sound, err := r.countFrom(from)
		if err != nil {
			return 0, err
		}
		// The lines begin behind the n-th line feed before the last line's.
		before := n
		if !lines.open {
			before++
		}
		if from == 0 || sound && lines.feeds >= before {
			r.seek(from)
			return max(0, lines.feeds-before+1), nil
		}
	}
}

// seek makes off the next member's offset.
func (r *Reader) seek(off int64) {
	r.at, r.pending, r.ended, r.hold.open = off, false, false, false
}

// countFrom counts the lines from the member at off to the end. Sound says that
// member follows member from there, but for a torn last one: what looks like a
// member can be a part of another's text, but then its end is not followed by
// the next.
func (r *Reader) countFrom(off int64) (lines LineCounter, sound bool, err error) {
	r.seek(off)
	sound = true
	err = r.CopyText(&lines, nil, func(d *Damage) {
		sound = sound && d.Tail && errors.Is(d.Err, io.ErrUnexpectedEOF)
	})
	return lines, sound, err
}

// LineCounter counts the lines that are written to it.
type LineCounter struct {
	feeds int64 // line feeds
	open  bool  // the last line has none
}

func (l *LineCounter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.feeds += int64(bytes.Count(p, []byte{'\n'}))
		l.open = p[len(p)-1] != '\n'
	}
	return len(p), nil
}

// Lines is how many there were. A last one without a line feed counts.
func (l *LineCounter) Lines() int64 {
	if l.open {
		return l.feeds + 1
	}
	return l.feeds
}

// afterLines passes on to out what follows the first skip line feeds.
type afterLines struct {
	out  io.Writer
	skip int64
}

func (a *afterLines) Write(p []byte) (int, error) {
	rest := p
	for a.skip > 0 {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		rest = rest[i+1:]
		a.skip--
	}
	if len(rest) > 0 {
		if _, err := a.out.Write(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Tail gives out the last n lines, and tells each damage among what is read
// from there to lost. The error is that of out, or one of reading.
func (r *Reader) Tail(out io.Writer, n int64, lost func(*Damage)) error {
	skip, err := r.LastLines(n)
	if err != nil {
		return err
	}
	return r.CopyText(&afterLines{out, skip}, nil, lost)
}
