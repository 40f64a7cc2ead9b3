package proc

import (
	"io"
	"io/fs"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"logboom/drain"
)

// maxInterval is the longest sleep between two drains of a pipe: a writer that
// is suddenly faster than ever may fill the pipe, and then waits no longer.
const maxInterval = 4 * time.Millisecond

// Reader gives out the lines of one pipe.
type Reader struct {
	pipe  *Pipe
	lines *lines
	loop  drain.Loop
}

// NewReader prepares to read pipe, which stays the caller's to close after
// Run. The poller is where the reader parks while nothing arrives. The handler
// borrows each block for its call; while it blocks, the pipe fills and the
// writer waits.
func NewReader(pipe *Pipe, poller *drain.Poller, cfg LineConfig, handler func(Block)) *Reader {
	r := &Reader{pipe: pipe, lines: newLines(cfg, pipe.size, handler)}
	r.loop = drain.Loop{
		FD:          pipe.fd,
		Pipe:        pipe.exclusive,
		Poller:      poller,
		Room:        pipe.Size,
		Target:      maxRead,
		MaxInterval: maxInterval,
		Drain:       r.drain,
	}
	return r
}

// Run reads until the pipe's end or until stop is closed; then it takes what
// the pipe held at that moment. In both cases it gives out a line that has no
// LF yet, and returns nil. An error of read(2) ends it too, and is returned:
// the pipe should be closed then, so that the writer is not left hanging. A
// Reader runs once.
func (r *Reader) Run(stop <-chan struct{}) error {
	err := r.loop.Run(stop)
	if err == nil {
		err = r.drainWaiting()
	}
	r.lines.finish(time.Now())
	if err == io.EOF {
		return nil
	}
	return err
}

// drain is what [drain.Loop] wants: it empties the pipe, or takes as much as
// the pipe holds from a writer that keeps it full.
func (r *Reader) drain() (taken int, again time.Duration, err error) {
	for more := true; more; {
		if taken >= r.pipe.size {
			again = -1
			break
		}
		var n int
		n, more, err = r.read()
		taken += n
		if err != nil {
			return taken, 0, err
		}
	}
	if again == 0 && r.lines.waits() {
		again = r.lines.expire(time.Now())
	}
	r.lines.drained(taken)
	return taken, again, nil
}

// drainWaiting takes what the pipe holds, and nothing that comes later: a busy
// writer must not hold up a shutdown.
func (r *Reader) drainWaiting() error {
	for left := r.pipe.waiting(); left > 0; {
		n, more, err := r.read()
		if err != nil || !more {
			return err
		}
		left -= n
	}
	return nil
}

// read does one read(2) and hands on what it brought. more says that there may
// be more at once: a read that did not fill its space has emptied the pipe.
// The error is io.EOF at the end.
func (r *Reader) read() (n int, more bool, err error) {
	if !r.pipe.readable() {
		return 0, false, nil
	}
	space := r.lines.space()
	n, err = readNow(r.pipe.fd, space)
	switch {
	case err == unix.EAGAIN:
		return 0, false, nil
	case err == unix.EINTR:
		return 0, true, nil
	case err != nil:
		return 0, false, &fs.PathError{Op: "read", Path: r.pipe.name, Err: err}
	case n == 0:
		return 0, false, io.EOF
	}
	r.lines.fed(n, time.Now())
	return n, n == len(space), nil
}

// readNow is read(2) of a descriptor that does not block, without telling the
// runtime of it: that would wake its monitor, a thread that looks after calls
// that last, for each drain of an otherwise idle process.
func readNow(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
