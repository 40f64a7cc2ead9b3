package gzipwriter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// recheckLen is how far before a damaged last member all members are inflated:
// what one power failure can leave behind, bytes.
const recheckLen = 64 << 20

// ErrUntouched says that [Repair] or [Salvage] left a file as it is, though it does not end
// on a whole member: it must not be appended to.
var ErrUntouched = errors.New("left as it is")

// Repair makes a gzip or zstd file end on a whole member, before it is first
// appended to. A torn tail (a member cut short or full of holes, padding, garbage) is
// appended to NAME.torn, which is then synced, and cut off the file; cut is its
// length in bytes, 0 for a file that was whole. A crash in between leaves the
// tail in both files, never in none.
//
// f is a regular file, open for reading and writing under its f.Name(), and
// nobody else writes to it meanwhile. NAME.torn gets the mode of f, and is not
// followed if it is a symbolic link.
//
// The error is [ErrUntouched] if the file begins neither with a whole member
// nor with a torn one of ours, since then it may be anyone's data, and if a
// whole member follows the damage, since then this is no torn tail. Readers end
// at the damage and would never see what is appended after it. Any other error
// is one of reading or writing, and Repair can be tried again.
func Repair(f *os.File) (cut int64, err error) {
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !stat.Mode().IsRegular() {
		return 0, &os.PathError{Op: "repair", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	size := stat.Size()
	if size == 0 {
		return 0, nil // as logrotate makes them
	}
	end, err := tornFrom(f, size)
	if err != nil {
		return 0, &os.PathError{Op: "repair", Path: f.Name(), Err: err}
	}
	if end == size {
		return 0, nil
	}
	if err := saveTail(f, stat.Mode().Perm(), end, size); err != nil {
		return 0, err
	}
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	return size - end, f.Sync()
}

// tornFrom returns where the torn tail of a file begins, size if it has none.
func tornFrom(r io.ReaderAt, size int64) (int64, error) {
	s := scanAll(r, size, math.MaxInt64)
	if s.Err() != nil && s.End() > 0 {
		// The member before the damage may have been hopped over, and what
		// spoilt the last may have spoilt those before it.
		s = scanAll(r, size, max(0, s.End()-recheckLen))
	}
	reason := s.Err()
	if reason == nil {
		return size, nil
	}
	if !flawed(reason) {
		return 0, reason
	}
	if s.End() == 0 {
		if m, err := s.codec.claim(0); err != nil || !m.Ours {
			return 0, fmt.Errorf("%w: %w", ErrUntouched, reason)
		}
	}
	at, err := s.codec.find(s.End()+1, size)
	if err != nil {
		return 0, err
	}
	if at >= 0 {
		return 0, fmt.Errorf("%w: %w, but whole again at offset %d", ErrUntouched, reason, at)
	}
	return s.End(), nil
}

// scanAll walks to the end, inflating all members from checkFrom on.
func scanAll(r io.ReaderAt, size, checkFrom int64) *Scanner {
	s := ScanMembers(r, size)
	s.checkFrom = checkFrom
	for s.Next() {
	}
	return s
}

// flawed says that an error is one of the data, not of reading it.
func flawed(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrDamaged)
}

// saveTail appends bytes end to size of f to its .torn file, and returns when
// they are on disk under that name. After an error that file is as it was.
func saveTail(f *os.File, mode fs.FileMode, end, size int64) error {
	torn, created, err := openTorn(f.Name()+".torn", mode)
	if err != nil {
		return err
	}
	err = appendTail(torn, f, end, size)
	if err == nil {
		err = syncDir(filepath.Dir(torn.Name()))
	}
	if closeErr := torn.Close(); err == nil {
		err = closeErr
	}
	if err != nil && created {
		return errors.Join(err, os.Remove(torn.Name()))
	}
	return err
}

// openTorn opens or makes a file to append to, and says which. O_NONBLOCK keeps
// a FIFO of that name from blocking the open.
func openTorn(name string, mode fs.FileMode) (f *os.File, created bool, err error) {
	const flags = os.O_WRONLY | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err = os.OpenFile(name, flags|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		if err = f.Chmod(mode); err != nil { // whatever the umask is
			return nil, false, errors.Join(err, f.Close(), os.Remove(name))
		}
		return f, true, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, false, err
	}
	if f, err = os.OpenFile(name, flags, 0); err != nil {
		return nil, false, err
	}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, false, err
	}
	return f, false, nil
}

// appendTail copies bytes end to size of f to the end of torn and syncs it, or
// cuts torn back to what it was.
func appendTail(torn, f *os.File, end, size int64) error {
	stat, err := torn.Stat()
	if err != nil {
		return err
	}
	n, err := io.Copy(torn, io.NewSectionReader(f, end, size-end))
	if err == nil && n < size-end {
		err = errShrunk
	}
	if err == nil {
		err = torn.Sync()
	}
	if err != nil {
		return errors.Join(err, torn.Truncate(stat.Size()))
	}
	return nil
}

// syncDir makes a new name in dir outlive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// EndsWithNewline says whether a plain text file ends on a whole line: its last
// byte is LF, or it is empty. f must be open for reading; its offset stays.
func EndsWithNewline(f *os.File) (bool, error) {
	stat, err := f.Stat()
	if err != nil || stat.Size() == 0 {
		return err == nil, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], stat.Size()-1); err != nil {
		return false, err
	}
	return last[0] == '\n', nil
}
