package gzipwriter

import (
	"errors"
	"io"
	"math"
	"slices"
)

const (
	// unknownSize is the size of a stream until its end has been read.
	unknownSize = math.MaxInt64

	// keepStream is how many bytes of a stream can be read again: as far back
	// as a whole member after a damage can be found.
	keepStream = 16 << 20
)

var (
	// errShrunk is no damage: somebody truncated the file while it was read.
	errShrunk = errors.New("file became shorter while it was read")

	// errForgotten is no damage either: it is too long ago in the stream.
	errForgotten = errors.New("no longer remembered of the stream")
)

// source is where members are read from: the first size bytes of a file, or a
// stream, of which the last keepStream bytes or more are remembered.
type source struct {
	size int64
	file io.ReaderAt // nil: a stream

	stream io.Reader
	err    error  // of reading the stream, but for its end
	kept   []byte // the last bytes that were read,
	base   int64  // from this offset on
}

// readSome reads at least one byte at off into p, and of a stream no more than
// is there without waiting. The error is io.EOF at the end.
func (s *source) readSome(p []byte, off int64) (int, error) {
	if s.file == nil {
		return s.readStream(p, off)
	}
	if off >= s.size {
		return 0, io.EOF
	}
	n, err := s.file.ReadAt(p[:min(int64(len(p)), s.size-off)], off)
	if n > 0 {
		return n, nil // an error comes again at the next call
	}
	if err == nil || err == io.EOF {
		err = errShrunk
	}
	return 0, err
}

func (s *source) readStream(p []byte, off int64) (int, error) {
	if off < s.base {
		return 0, errForgotten
	}
	for off >= s.base+int64(len(s.kept)) {
		if s.err == nil && s.size == unknownSize {
			s.fill()
			continue
		}
		if s.err != nil {
			return 0, s.err
		}
		return 0, io.EOF
	}
	return copy(p, s.kept[off-s.base:]), nil
}

// fill reads on in the stream, and forgets what is too long ago.
func (s *source) fill() {
	if old := len(s.kept) - keepStream; old > keepStream {
		s.kept = s.kept[:copy(s.kept, s.kept[old:])]
		s.base += int64(old)
	}
	s.kept = slices.Grow(s.kept, readBuffer)
	n, err := s.stream.Read(s.kept[len(s.kept) : len(s.kept)+readBuffer])
	s.kept = s.kept[:len(s.kept)+n]
	switch err {
	case nil:
	case io.EOF:
		s.size = s.base + int64(len(s.kept))
	default:
		s.err = err
	}
}

// readFull fills p from off on. It returns fewer bytes only where the source
// ends, and then no error.
func (s *source) readFull(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		var some int
		some, err = s.readSome(p[n:], off+int64(n))
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

// input reads a source from next on, to end at most, and keeps the error of
// reading, which a decompressor may wrap or replace.
type input struct {
	src  *source
	next int64
	end  int64
	err  error
}

func (in *input) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), in.end-in.next)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := in.src.readSome(p, in.next)
	in.next += int64(n)
	if err != nil && err != io.EOF {
		in.err = err
	}
	return n, err
}
