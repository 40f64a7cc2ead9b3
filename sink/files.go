package sink

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// File is how the files of a sink are written.
type File struct {
	Prefix     string // the folder that no file is outside of; below it no symbolic link is followed
	Gzip       bool   // a member a batch; else the text as it is
	Level      int    // of compression, 1 to 9
	Mode       fs.FileMode
	DirMode    fs.FileMode
	UID, GID   int      // -1: whoever the daemon is
	MaxOpen    int      // descriptors
	Descriptor *os.File // written to instead of any path: the daemon's standard output or error
}

// files delivers batches to files: a batch is one write(2). It owns the files
// it has open, and keeps those that it wrote to last.
type files struct {
	log       zerolog.Logger
	counters  *counters
	open      map[string]*list.Element // of *file, by path
	recent    list.List                // the last used first
	compress  map[int]*gzipwriter.Writer
	arena     uint64
	reopening time.Time // when files that could not be reopened are looked at again
	ends      map[string]end
}

// end is how a file was left when it was closed. If it is found so again, it
// need not be looked through for a torn tail.
type end struct {
	inode uint64
	size  int64
}

// maxEnds bounds how many closed files are remembered.
const maxEnds = 1 << 16

// file is one that is open.
type file struct {
	path   string
	spec   *File
	os     *os.File
	fd     int // of os; os.File.Fd would make it blocking
	out    *gzipwriter.OSFile
	made   bool // by us, and nothing is in it yet
	reopen bool // a Reopen could not be followed yet
}

func newFiles(c *counters, log zerolog.Logger) *files {
	return &files{
		log: log, counters: c, arena: rand.Uint64(),
		open: make(map[string]*list.Element), compress: make(map[int]*gzipwriter.Writer),
		ends: make(map[string]end),
	}
}

// Deliver appends one batch to its file.
func (fs *files) Deliver(b *buffer.Batch, _ <-chan struct{}) error {
	spec := b.Spec.(*File)
	if !fs.reopening.IsZero() && time.Now().After(fs.reopening) {
		fs.Reopen()
	}
	f, err := fs.file(b.Key, spec)
	if err != nil {
		return refuse(b, err)
	}
	text, err := fs.member(b, spec)
	if err != nil {
		return err
	}
	n, err := gzipwriter.AppendFile(f.out, text)
	if n > 0 {
		fs.counters.writes.Add(1)
		f.made = false
	}
	if err != nil && (f.made || errors.Is(err, gzipwriter.ErrTorn)) {
		fs.drop(b.Key)
		delete(fs.ends, b.Key)
	}
	return err
}

// member returns the bytes of a batch as they go into its file.
func (fs *files) member(b *buffer.Batch, spec *File) ([]byte, error) {
	if !spec.Gzip {
		return b.Bytes(), nil
	}
	w := fs.compress[spec.Level]
	if w == nil {
		var err error
		if w, err = gzipwriter.NewWriter(spec.Level); err != nil {
			return nil, err
		}
		fs.compress[spec.Level] = w
	}
	return w.Member(b.Bytes(), gzipwriter.Info{
		Messages: uint32(b.Messages), First: b.First.UnixNano(), Last: b.Last.UnixNano(),
		Arena: fs.arena, Sequence: b.Sequence, Dropped: uint32(b.Dropped),
	})
}

// refuse makes an error final that no retry can mend: the path leads through
// a link or to what is no file.
func refuse(b *buffer.Batch, err error) error {
	for _, final := range []error{unix.ELOOP, unix.ENOTDIR, unix.EISDIR, unix.ENAMETOOLONG} {
		if errors.Is(err, final) {
			return &Refused{Reason: "refused path", Messages: b.Messages, Err: err}
		}
	}
	return err
}

// file returns the open file of a path.
func (fs *files) file(path string, spec *File) (*file, error) {
	if e := fs.open[path]; e != nil {
		f := e.Value.(*file)
		if f.spec.Gzip == spec.Gzip && f.spec.Descriptor == spec.Descriptor {
			fs.recent.MoveToFront(e)
			return f, nil
		}
		fs.drop(path)
	}
	for len(fs.open) >= max(spec.MaxOpen, 1) {
		fs.drop(fs.recent.Back().Value.(*file).path)
	}
	f, err := fs.openAnew(path, spec)
	if errors.Is(err, unix.EMFILE) && len(fs.open) > 0 {
		fs.drop(fs.recent.Back().Value.(*file).path)
		f, err = fs.openAnew(path, spec)
	}
	if err != nil {
		return nil, err
	}
	fs.open[path] = fs.recent.PushFront(f)
	return f, nil
}

func (fs *files) openAnew(path string, spec *File) (*file, error) {
	f := &file{path: path, spec: spec, os: spec.Descriptor}
	var err error
	if f.os == nil {
		if f.fd, f.made, err = openFile(path, spec); err != nil {
			return nil, err
		}
		f.os = os.NewFile(uintptr(f.fd), path)
	}
	if f.out, err = gzipwriter.NewFile(f.os); err == nil && f.out.Regular() && spec.Descriptor == nil {
		err = fs.takeOver(f)
	}
	if errors.Is(err, gzipwriter.ErrUntouched) {
		f.os.Close()
		aside, asideErr := setAside(path, spec)
		if asideErr != nil {
			return nil, fmt.Errorf("%w; setting it aside: %w", err, asideErr)
		}
		fs.log.Error().Err(err).Str("path", path).Str("renamed_to", aside).Msg("the file is damaged and was set aside; a new one begins")
		return fs.openAnew(path, spec)
	}
	if err != nil {
		fs.close(f)
		delete(fs.ends, path)
		return nil, err
	}
	return f, nil
}

// takeOver locks a regular file, so that it has one writer, and makes it end
// on a whole member, or a whole line.
func (fs *files) takeOver(f *file) error {
	if err := unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if err == unix.EWOULDBLOCK {
			err = errors.New("another process writes to it")
		}
		return &os.PathError{Op: "lock", Path: f.path, Err: err}
	}
	if left, ok := fs.ends[f.path]; f.made || ok && left == f.end() {
		return nil
	}
	if f.spec.Gzip {
		cut, err := gzipwriter.Repair(f.os)
		if cut > 0 {
			fs.log.Warn().Str("path", f.path).Int64("bytes", cut).Msg("the file ended on a torn member; it was cut off and kept in " + filepath.Base(f.path) + ".torn")
		}
		return err
	}
	whole, err := gzipwriter.EndsWithNewline(f.os)
	if err == nil && !whole {
		_, err = gzipwriter.AppendFile(f.out, []byte{'\n'})
	}
	return err
}

func (f *file) end() end {
	var stat unix.Stat_t
	if unix.Fstat(f.fd, &stat) != nil {
		return end{}
	}
	return end{inode: stat.Ino, size: stat.Size}
}

// drop closes a file that is open.
func (fs *files) drop(path string) {
	e := fs.open[path]
	if e == nil {
		return
	}
	fs.recent.Remove(e)
	delete(fs.open, path)
	fs.close(e.Value.(*file))
}

func (fs *files) close(f *file) {
	if f.spec.Descriptor != nil {
		return
	}
	if f.out != nil && f.out.Regular() && !f.made {
		if len(fs.ends) >= maxEnds {
			clear(fs.ends)
		}
		fs.ends[f.path] = f.end()
	}
	if f.made {
		if err := removeEmpty(f.path, f.spec); err != nil && err != unix.ENOENT {
			fs.log.Warn().Err(err).Str("path", f.path).Msg("cannot remove an empty file")
		}
	}
	if err := f.os.Close(); err != nil {
		fs.log.Error().Err(err).Str("path", f.path).Msg("closing")
	}
}

// Reopen closes the files that are no longer what their names lead to, so
// that the next batch opens them anew. Where a new one could not be opened
// now, the old one stays in use and is looked at again a second later.
func (fs *files) Reopen() {
	fs.reopening = time.Time{}
	for path, e := range fs.open {
		f := e.Value.(*file)
		moved, err := f.moved()
		switch {
		case err != nil:
			if !f.reopen {
				fs.log.Warn().Err(err).Str("path", path).Msg("cannot reopen; the old file stays in use, tried again every second")
			}
			f.reopen = true
			fs.reopening = time.Now().Add(time.Second)
		case moved:
			fs.drop(path)
		default:
			f.reopen = false
		}
	}
}

// moved reports whether the file's name leads to another file, or to none and
// one could be made; an error if that cannot be told.
func (f *file) moved() (bool, error) {
	if f.spec.Descriptor != nil {
		return false, nil
	}
	folder, err := openFolder(f.path, f.spec, false)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(folder)
	var ours, named unix.Stat_t
	if err := unix.Fstat(f.fd, &ours); err != nil {
		return false, err
	}
	name := filepath.Base(f.path)
	switch err := unix.Fstatat(folder, name, &named, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return true, unix.Faccessat(folder, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	case err != nil:
		return false, err
	case named.Dev == ours.Dev && named.Ino == ours.Ino:
		return false, nil
	}
	return true, unix.Faccessat(folder, name, unix.W_OK|unix.R_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW)
}

// Close closes all files.
func (fs *files) Close(<-chan struct{}) error {
	for path := range fs.open {
		fs.drop(path)
	}
	return nil
}
