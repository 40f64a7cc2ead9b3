package sink

import (
	"container/list"
	"errors"
	"fmt"
	"io"
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
	log      zerolog.Logger
	counters *counters
	open     map[string]*list.Element // of *file, by path
	recent   list.List                // the last used first
	compress map[int]*gzipwriter.Writer
	arena    uint64
	ends     map[string]end

	// Of a Reopen that could not be followed for all files; zero: none.
	stuck time.Time // since when
	again time.Time // when they are looked at next
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
	path string
	spec *File
	os   *os.File
	fd   int // of os; os.File.Fd would make it blocking
	out  *gzipwriter.OSFile
	made bool // by us, and nothing is in it yet
}

func newFiles(c *counters, log zerolog.Logger) *files {
	return &files{
		log: log, counters: c, arena: rand.Uint64(),
		open: make(map[string]*list.Element), compress: make(map[int]*gzipwriter.Writer),
		ends: make(map[string]end),
	}
}

// Deliver appends one batch to its file.
func (w *files) Deliver(b *buffer.Batch, _ <-chan struct{}) error {
	spec := b.Spec.(*File)
	if !w.stuck.IsZero() && time.Now().After(w.again) {
		w.Reopen()
	}
	// Before the file: one that is new is empty for no longer than it must be.
	text, err := w.member(b, spec)
	if err != nil {
		return err
	}
	f, err := w.file(b.Key, spec)
	if err != nil {
		var refused *Refused
		if errors.As(err, &refused) {
			refused.Messages = b.Messages
		}
		return err
	}
	n, err := gzipwriter.AppendFile(f.out, text)
	if n > 0 {
		w.counters.writes.Add(1)
		f.made = false
	}
	if err != nil && (f.made || errors.Is(err, gzipwriter.ErrTorn)) {
		w.drop(b.Key)
		delete(w.ends, b.Key)
	}
	if err == io.ErrShortWrite && f.out.Regular() {
		// The kernel takes a part of what has no room, and says why only to
		// who tries the rest. That part is cut off again.
		err = &os.PathError{Op: "write", Path: b.Key, Err: unix.ENOSPC}
	}
	return err
}

// member returns the bytes of a batch as they go into its file.
func (w *files) member(b *buffer.Batch, spec *File) ([]byte, error) {
	if !spec.Gzip {
		return b.Bytes(), nil
	}
	level := w.compress[spec.Level]
	if level == nil {
		var err error
		if level, err = gzipwriter.NewWriter(spec.Level); err != nil {
			return nil, err
		}
		w.compress[spec.Level] = level
	}
	return level.Member(b.Bytes(), gzipwriter.Info{
		Messages: uint32(b.Messages), First: b.First.UnixNano(), Last: b.Last.UnixNano(),
		Arena: w.arena, Sequence: b.Sequence, Dropped: uint32(b.Dropped),
	})
}

// file returns the open file of a path.
func (w *files) file(path string, spec *File) (*file, error) {
	if e := w.open[path]; e != nil {
		f := e.Value.(*file)
		if f.spec.Gzip == spec.Gzip && f.spec.Descriptor == spec.Descriptor {
			w.recent.MoveToFront(e)
			return f, nil
		}
		w.drop(path)
	}
	for len(w.open) >= max(spec.MaxOpen, 1) {
		w.drop(w.recent.Back().Value.(*file).path)
	}
	f, err := w.openAnew(path, spec)
	if errors.Is(err, unix.EMFILE) && len(w.open) > 0 {
		w.drop(w.recent.Back().Value.(*file).path)
		f, err = w.openAnew(path, spec)
	}
	if err != nil {
		return nil, err
	}
	w.open[path] = w.recent.PushFront(f)
	return f, nil
}

func (w *files) openAnew(path string, spec *File) (*file, error) {
	f := &file{path: path, spec: spec, os: spec.Descriptor}
	var err error
	if f.os == nil {
		if f.fd, f.made, err = openFile(path, spec); err != nil {
			return nil, err
		}
		f.os = os.NewFile(uintptr(f.fd), path)
	}
	if f.out, err = gzipwriter.NewFile(f.os); err == nil && f.out.Regular() && spec.Descriptor == nil {
		err = w.takeOver(f)
	}
	if errors.Is(err, gzipwriter.ErrUntouched) {
		f.os.Close()
		aside, asideErr := setAside(path, spec)
		if asideErr != nil {
			return nil, fmt.Errorf("%w; setting it aside: %w", err, asideErr)
		}
		w.log.Error().Err(err).Str("path", path).Str("renamed_to", aside).Msg("the file is damaged and was set aside; a new one begins")
		return w.openAnew(path, spec)
	}
	if err != nil {
		w.close(f)
		delete(w.ends, path)
		return nil, err
	}
	return f, nil
}

// takeOver locks a regular file, so that it has one writer, and makes it end
// on a whole member, or a whole line.
func (w *files) takeOver(f *file) error {
	if err := unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.made = false // by now it may hold what the other wrote
		if err == unix.EWOULDBLOCK {
			err = errors.New("another writer has it")
		}
		return &os.PathError{Op: "lock", Path: f.path, Err: err}
	}
	if left, ok := w.ends[f.path]; f.made || ok && left == f.end() {
		return nil
	}
	if f.spec.Gzip {
		cut, err := gzipwriter.Repair(f.os)
		if cut > 0 {
			w.log.Warn().Str("path", f.path).Int64("bytes", cut).Msg("the file ended on a torn member; it was cut off and kept in " + filepath.Base(f.path) + ".torn")
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
func (w *files) drop(path string) {
	e := w.open[path]
	if e == nil {
		return
	}
	w.recent.Remove(e)
	delete(w.open, path)
	w.close(e.Value.(*file))
}

func (w *files) close(f *file) {
	if f.spec.Descriptor != nil {
		return
	}
	if f.out != nil && f.out.Regular() && !f.made {
		if len(w.ends) >= maxEnds {
			clear(w.ends)
		}
		w.ends[f.path] = f.end()
	}
	if f.made {
		if err := removeEmpty(f.path, f.fd, f.spec); err != nil && !errors.Is(err, unix.ENOENT) {
			w.log.Warn().Err(err).Str("path", f.path).Msg("cannot remove an empty file")
		}
	}
	if err := f.os.Close(); err != nil {
		w.log.Error().Err(err).Str("path", f.path).Msg("closing")
	}
}

// Reopen closes the files that are no longer what their names lead to, so
// that the next batch opens them anew. Where a new one could not be opened
// now, the old one stays in use and is looked at again a second later.
func (w *files) Reopen() {
	var failed error
	stays := 0
	for path, e := range w.open {
		switch moved, err := e.Value.(*file).moved(); {
		case err != nil:
			failed = err
			stays++
		case moved:
			w.drop(path)
		}
	}
	now := time.Now()
	switch begun := w.stuck.IsZero(); {
	case failed != nil && begun:
		w.log.Warn().Err(failed).Int("files", stays).Msg("cannot reopen; old files stay in use, and it is tried again every second")
		w.stuck = now
	case failed == nil && !begun:
		w.log.Info().Dur("after", now.Sub(w.stuck)).Msg("all files are reopened")
		w.stuck = time.Time{}
	}
	w.again = now.Add(time.Second)
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
	case isSame(&ours, &named):
		return false, nil
	}
	return true, unix.Faccessat(folder, name, unix.W_OK|unix.R_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW)
}

// Close closes all files.
func (w *files) Close(<-chan struct{}) error {
	for path := range w.open {
		w.drop(path)
	}
	return nil
}
