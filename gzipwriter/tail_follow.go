package gzipwriter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// What the note of [Follow] is told besides each *[Damage] and the errors of
// opening. They are wrapped in an *os.PathError.
var (
	ErrReplaced  = errors.New("another file has the name now: following that")
	ErrTruncated = errors.New("file was truncated: following from its beginning")
)

// Follow gives out the last n lines of the file of that name, and then what is
// appended, member by member as each is whole, until ctx is done or out fails.
// It follows the name as tail -F does: a file that was renamed or removed is
// read until another one has its name, and then to its end before that; a
// truncated one is read from its beginning; one that is not there is waited
// for. All that is unusual is told to note, once.
//
// The error is nil once ctx is done, else that of out, or one of reading.
func Follow(ctx context.Context, name string, n int64, out io.Writer, note func(error)) error {
	w, err := openWatch(name)
	if err != nil {
		return err
	}
	defer w.close()
	f := follower{name: name, out: out, note: note, watch: w}
	defer f.close()
	if err := f.begin(n); err != nil {
		return err
	}
	for {
		if err := f.catchUp(); err != nil {
			return err
		}
		changed, err := f.lookUp()
		if err != nil {
			return err
		}
		if changed {
			continue
		}
		if err := w.wait(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// markLen is how many bytes before the place reached are compared at each look,
// to notice a file that was truncated and has grown again.
const markLen = 64

// follower is where a [Follow] is.
type follower struct {
	name  string
	out   io.Writer
	note  func(error)
	watch *watch

	file    *os.File // nil while no file had the name yet
	stat    fs.FileInfo
	reader  *Reader
	mark    []byte // the bytes before reader.at
	missing bool   // noted that the name leads to no file
}

func (f *follower) close() {
	if f.file != nil {
		f.file.Close()
	}
}

// begin gives out the last n lines of the file, if there is one.
func (f *follower) begin(n int64) error {
	file, stat, err := f.open()
	if err != nil {
		f.missed(err)
		return nil
	}
	f.turnTo(file, stat)
	f.reader.grow(stat.Size())
	if err := f.reader.Tail(f.out, n, f.damage); err != nil && err != errShrunk {
		return err
	}
	return f.remember()
}

// open opens the file that has the name now, and has it watched.
func (f *follower) open() (*os.File, fs.FileInfo, error) {
	// O_NONBLOCK keeps a FIFO from blocking the open.
	file, err := os.OpenFile(f.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	stat, err := file.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = &os.PathError{Op: "follow", Path: f.name, Err: errors.New("not a regular file")}
	}
	if err == nil {
		err = f.watch.follow(file) // before it is read, so that nothing is missed
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, stat, nil
}

// turnTo leaves the file before, and begins with this one.
func (f *follower) turnTo(file *os.File, stat fs.FileInfo) {
	f.close()
	f.file, f.stat, f.missing = file, stat, false
	f.restart()
}

// restart begins at the beginning of the file.
func (f *follower) restart() {
	f.reader = NewReader(f.file, 0)
	f.reader.growing = true
	f.mark = f.mark[:0]
}

// catchUp gives out all whole members that were appended.
func (f *follower) catchUp() error {
	if f.file == nil {
		return nil
	}
	stat, err := f.file.Stat()
	if err != nil {
		return err
	}
	truncated, err := f.truncated(stat.Size())
	if err != nil {
		return err
	}
	if truncated {
		f.note(&os.PathError{Op: "follow", Path: f.name, Err: ErrTruncated})
		f.restart()
	}
	f.reader.grow(stat.Size())
	err = f.reader.CopyText(f.out, nil, f.damage)
	if err != nil && err != errShrunk { // a truncated file is noticed at the next look
		return err
	}
	return f.remember()
}

// damage passes on what is told of a damage, but for a tail: that may be a
// member whose end is still to come.
func (f *follower) damage(d *Damage) {
	if !d.Tail || !f.reader.growing {
		f.note(&os.PathError{Op: "read", Path: f.name, Err: d})
	}
}

// truncated says whether what was read is no longer there.
func (f *follower) truncated(size int64) (bool, error) {
	if size < f.reader.at {
		return true, nil
	}
	var now [markLen]byte
	n, err := f.readMark(now[:len(f.mark)])
	return err == nil && !bytes.Equal(now[:n], f.mark), err
}

// remember takes the bytes before the place reached.
func (f *follower) remember() error {
	var now [markLen]byte
	n, err := f.readMark(now[:min(markLen, f.reader.at)])
	f.mark = append(f.mark[:0], now[:n]...)
	return err
}

// readMark reads the last bytes before the place reached.
func (f *follower) readMark(p []byte) (int, error) {
	n, err := f.file.ReadAt(p, f.reader.at-int64(len(p)))
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// lookUp turns to another file if that has the name now.
func (f *follower) lookUp() (changed bool, err error) {
	stat, err := os.Stat(f.name)
	if err == nil && f.file != nil && os.SameFile(stat, f.stat) {
		f.missing = false
		return false, nil
	}
	var next *os.File
	if err == nil {
		next, stat, err = f.open()
	}
	if err != nil {
		f.missed(err)
		return false, nil
	}
	if f.file != nil {
		// Whatever was written until the name changed is in it by now.
		if err := f.finish(); err != nil {
			next.Close()
			return false, err
		}
		f.note(&os.PathError{Op: "follow", Path: f.name, Err: ErrReplaced})
	}
	f.turnTo(next, stat)
	return true, nil
}

// finish gives out the rest of a file that is left, and tells of a tail that
// stayed torn.
func (f *follower) finish() error {
	if err := f.catchUp(); err != nil {
		return err
	}
	f.reader.growing, f.reader.ended = false, false
	err := f.reader.CopyText(f.out, nil, f.damage)
	if err == errShrunk {
		err = nil
	}
	return err
}

// missed notes, once, that the name leads to no file.
func (f *follower) missed(err error) {
	if !f.missing {
		f.missing = true
		f.note(fmt.Errorf("%w; waiting for it", err))
	}
}

// grow tells a growing Reader how long its file is now.
func (r *Reader) grow(size int64) { r.src.size, r.ended = size, false }
