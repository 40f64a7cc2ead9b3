package gzipwriter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrTorn says that a file may now end on a piece of what was to be appended:
// it took only a part, and could not be cut back. The caller goes on in a new
// file; this one must not be appended to before [Repair].
var ErrTorn = errors.New("file ends on a torn piece")

// File is what [AppendFile] writes to: an [OSFile], or a double in tests.
type File interface {
	// Write is one write(2) of p, which it does not keep. Unlike that of an
	// io.Writer it may return n < len(p) without an error.
	Write(p []byte) (n int, err error)
	// Regular says that the file can be cut back; a pipe or a terminal cannot.
	Regular() bool
	// Tail returns where the last Write ended and how long the file is now.
	// Both are the same unless someone else truncated or appended meanwhile.
	Tail() (written, size int64, err error)
	// Truncate cuts the file to size bytes; the next Write goes there.
	Truncate(size int64) error
}

// AppendFile appends p to a file, whole or not at all, and keeps nothing of
// it. It returns how many bytes of p the file now holds.
//
// For a regular file that is exactly one write(2) (EINTR before the first byte
// begins anew). After a short write the file is cut back to the length that it
// had, so that it ends on a whole member again, n is 0, and the error is the
// one that cut the write short, or io.ErrShortWrite where the kernel named
// none; the caller may retry. If cutting back failed the error is also
// [ErrTorn], and n is the length of the piece.
//
// What went into a pipe, socket or terminal cannot be taken back, so there a
// short write is continued; n < len(p) with an error says how far it came.
// Appending nothing makes no system call.
func AppendFile(f File, p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err = writeOnce(f, p)
	if n == len(p) {
		return n, nil
	}
	if !f.Regular() {
		return writeRest(f, p, n, err)
	}
	if err == nil {
		err = io.ErrShortWrite
	}
	if n == 0 {
		return 0, err
	}
	if cutErr := cutBack(f, int64(n)); cutErr != nil {
		return n, fmt.Errorf("%w: %w; cutting back: %w", ErrTorn, err, cutErr)
	}
	return 0, err
}

// writeOnce is one Write that no signal came before.
func writeOnce(f File, p []byte) (n int, err error) {
	for {
		n, err = f.Write(p)
		if n > 0 || !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// writeRest continues after a first Write that took n bytes and ended with err.
func writeRest(f File, p []byte, n int, err error) (int, error) {
	for err == nil && n < len(p) {
		var more int
		more, err = writeOnce(f, p[n:])
		if more == 0 && err == nil {
			err = io.ErrShortWrite // no progress, no reason: do not spin
		}
		n += more
	}
	if n == len(p) {
		return n, nil
	}
	return n, err
}

// errFollowed says that the torn piece is no longer the file's end.
var errFollowed = errors.New("another writer appended after it")

// cutBack takes back the n bytes that the last Write wrote. It goes by where
// that write ended, not by a length seen before it: the file may have been
// truncated in between (copytruncate), and cutting to the old length would
// then fill it up with zeros.
func cutBack(f File, n int64) error {
	written, size, err := f.Tail()
	if err != nil {
		return err
	}
	before := written - n
	switch {
	case size <= before:
		return nil // truncated since, our piece with it
	case size > written:
		return errFollowed // whose bytes are not ours to cut
	}
	return f.Truncate(before)
}

// OSFile is an open file as [AppendFile] wants it. Not for concurrent use.
type OSFile struct {
	file    *os.File
	conn    syscall.RawConn
	regular bool

	// One write's argument and results. They are here, and the closure is made
	// once, so that a write allocates nothing.
	call func(fd uintptr) (done bool)
	p    []byte
	n    int
	err  error
}

// NewFile wraps f, which stays the caller's to close. A regular file should be
// open with O_APPEND, so that each write goes to its end whatever others do; a
// redirected standard output, which is not, is written to where it stands.
func NewFile(f *os.File) (*OSFile, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	o := &OSFile{file: f, conn: conn, regular: stat.Mode().IsRegular()}
	o.call = o.write
	return o, nil
}

// Write is one write(2). os.File.Write would go on after a short one. On a
// non-blocking pipe it waits until there is room. The error is an
// *fs.PathError.
func (o *OSFile) Write(p []byte) (int, error) {
	o.p, o.n, o.err = p, 0, nil
	err := o.conn.Write(o.call)
	o.p = nil
	if err == nil {
		err = o.err
	}
	if err != nil {
		err = &os.PathError{Op: "write", Path: o.file.Name(), Err: err}
	}
	return o.n, err
}

// write is called with the descriptor; false asks to wait until it is writable.
func (o *OSFile) write(fd uintptr) bool {
	n, err := unix.Write(int(fd), o.p)
	if err == unix.EAGAIN {
		return false
	}
	o.n, o.err = max(n, 0), err
	return true
}

// Regular says whether it is a regular file.
func (o *OSFile) Regular() bool { return o.regular }

// Tail returns the descriptor's offset, which a write leaves at its end, with
// O_APPEND too, and the file's length.
func (o *OSFile) Tail() (written, size int64, err error) {
	if written, err = o.file.Seek(0, io.SeekCurrent); err != nil {
		return 0, 0, err
	}
	stat, err := o.file.Stat()
	if err != nil {
		return 0, 0, err
	}
	return written, stat.Size(), nil
}

// Truncate cuts the file, and moves the offset for one without O_APPEND, which
// would leave a hole otherwise.
func (o *OSFile) Truncate(size int64) error {
	if err := o.file.Truncate(size); err != nil {
		return err
	}
	_, err := o.file.Seek(size, io.SeekStart)
	return err
}
