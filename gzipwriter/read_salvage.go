package gzipwriter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Salvage makes a gzip or zstd file whole that is damaged in its middle, which
// [Repair] does not touch: what is no whole member is appended to NAME.torn,
// and a new file of all the others, with the mode and owner of the old one,
// takes its name. It returns how many bytes were cut, in how many pieces; 0 for
// a file that was whole. Everything is synced before the name changes. A crash
// before that leaves NAME as it was, and maybe NAME.repair, of which the next
// call complains.
//
// f is a regular file, open under its f.Name(), which is no symbolic link, and
// nobody else writes to it meanwhile; f is the old file afterwards. The error
// is [ErrUntouched] for plain text, and where not one member is whole.
func Salvage(f *os.File) (cut int64, pieces int, err error) {
	stat, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	s := salvage{f: f, stat: stat}
	err = s.run()
	if err != nil {
		err = errors.Join(err, s.undo())
	}
	if s.torn != nil {
		err = errors.Join(err, s.torn.Close(), s.whole.Close())
	}
	if err != nil {
		return 0, 0, err
	}
	return s.cut, s.pieces, nil
}

// salvage is one run of [Salvage].
type salvage struct {
	f    *os.File
	stat fs.FileInfo

	// Both are nil until the first damage.
	whole *os.File // NAME.repair
	torn  *os.File // NAME.torn, which was tornSize bytes long

	tornSize int64
	tornMade bool

	from   int64 // where the members begin that are to be copied next
	cut    int64 // bytes
	pieces int

	renamed bool // the new file has the name
}

func (s *salvage) untouched(reason error) error {
	return &os.PathError{Op: "salvage", Path: s.f.Name(), Err: fmt.Errorf("%w: %w", ErrUntouched, reason)}
}

func (s *salvage) run() error {
	if !s.stat.Mode().IsRegular() {
		return s.untouched(errors.New("not a regular file"))
	}
	r := NewReader(s.f, s.stat.Size())
	members := 0
	for {
		_, err := r.Next()
		if r.Format() == Plain {
			return s.untouched(errors.New("plain text"))
		}
		if err == nil {
			if _, err = r.Copy(io.Discard); err == nil {
				members++
				continue
			}
		}
		var damage *Damage
		switch {
		case err == io.EOF && s.pieces == 0:
			return nil
		case err == io.EOF && members == 0:
			return s.untouched(errors.New("no member is whole"))
		case err == io.EOF:
			return s.finish()
		case !errors.As(err, &damage):
			return err
		}
		if err := s.separate(damage); err != nil {
			return err
		}
	}
}

// separate copies the members before a damage to one file, and what is damaged
// to the other.
func (s *salvage) separate(d *Damage) error {
	if s.torn == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	err := s.copy(s.whole, s.from, d.Offset)
	if err == nil {
		err = s.copy(s.torn, d.Offset, d.Offset+d.Length)
	}
	s.from = d.Offset + d.Length
	s.cut, s.pieces = s.cut+d.Length, s.pieces+1
	return err
}

func (s *salvage) open() (err error) {
	mode := s.stat.Mode().Perm()
	if s.torn, s.tornMade, err = openTorn(s.f.Name()+".torn", mode); err != nil {
		s.torn = nil
		return err
	}
	stat, err := s.torn.Stat()
	if err == nil {
		s.tornSize = stat.Size()
		s.whole, err = os.OpenFile(s.f.Name()+".repair", os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		err = errors.Join(err, s.undo(), s.torn.Close())
		s.torn, s.whole = nil, nil
	}
	return err
}

// copy appends bytes from to end of the file.
func (s *salvage) copy(to *os.File, from, end int64) error {
	n, err := io.Copy(to, io.NewSectionReader(s.f, from, end-from))
	if err == nil && n < end-from {
		err = errShrunk
	}
	return err
}

// finish copies the last members and gives the new file its name.
func (s *salvage) finish() error {
	dir := filepath.Dir(s.f.Name())
	owner := s.stat.Sys().(*syscall.Stat_t)
	for _, step := range []func() error{
		func() error { return s.copy(s.whole, s.from, s.stat.Size()) },
		s.torn.Sync,
		func() error { return syncDir(dir) },
		func() error { return s.whole.Chown(int(owner.Uid), int(owner.Gid)) },
		func() error { return s.whole.Chmod(s.stat.Mode()) },
		s.whole.Sync,
		func() error { return os.Rename(s.whole.Name(), s.f.Name()) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	s.renamed = true
	return syncDir(dir)
}

// undo leaves both files as they were, unless the new one has its name.
func (s *salvage) undo() (err error) {
	if s.renamed {
		return nil
	}
	if s.whole != nil {
		err = os.Remove(s.whole.Name())
	}
	switch {
	case s.torn == nil:
		return err
	case s.tornMade:
		return errors.Join(err, os.Remove(s.torn.Name()))
	}
	return errors.Join(err, s.torn.Truncate(s.tornSize))
}
