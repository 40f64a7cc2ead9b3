package sink

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// File is how the files of a sink are written.
type File struct {
	Prefix     string // the folder that no file is outside of; below it no symbolic link is followed
	Compress   gzipwriter.Format
	Level      int // of compression, 1 to 9
	Mode       fs.FileMode
	DirMode    fs.FileMode
	UID, GID   int      // -1: whoever the daemon is
	MaxOpen    int      // descriptors
	Descriptor *os.File // written to instead of any path: the daemon's standard output or error
	varies     bool     // the path holds variables: senders choose names
	Sync       Sync
	Rotate     Rotate
	Keep       Keep
	Symlink    string // absolute; leads to the newest file; "": none

	families []*family // of the path and the overflow path; none: a descriptor
	timed    bool      // names change with time, and with the message
	framed   bool      // batches hold counted frames, of a syslog sink that is gone
	meant    *meant    // where the one batch was being written to, by a sink that is gone
	skip     int       // bytes of that batch that are there
}

// files delivers batches to files: a batch is one write(2). It owns the files
// it has open, and keeps those that it wrote to last.
type files struct {
	log      zerolog.Logger
	counters *counters
	presses  presses
	open     map[string]*list.Element // of *file, by path
	recent   list.List                // the last used first
	ends     map[string]end
	current  map[string]string // the path that is open, by line of descent, where that has several

	dirty  map[*file]struct{} // written to since they were synced
	syncAt time.Time          // when they are synced; zero: there are none

	steps  []step         // of a rotation
	second int64          // of the last rotation
	taken  map[string]int // by path, how many names of that second were given; those that are free again stay so
	keeper *retainer      // nil until it is needed
	keepAt time.Time      // when all files are looked at next

	// Troubles that were told of and are not over.
	unsynced  bool
	unlinked  bool
	unmarked  bool
	unrotated map[string]bool // by path

	linked string // the symbolic link that was set or tried

	// Of a Reopen that could not be followed for all files; zero: none.
	stuck time.Time // since when
	again time.Time // when they are looked at next
}

// end is how a file was left when it was closed. If it is found so again, it
// need not be looked through for a torn tail.
type end struct {
	inode uint64
	size  int64
	period
}

// maxEnds bounds how many closed files are remembered.
const maxEnds = 1 << 16

// file is one that is open.
type file struct {
	path    string
	spec    *File
	os      *os.File
	fd      int // of os; os.File.Fd would make it blocking
	out     *gzipwriter.OSFile
	made    bool        // by us, and nothing is in it yet
	unnamed bool        // made by us, and not introduced yet
	stat    unix.Stat_t // when it was measured
	size    int64       // bytes
	looked  time.Time   // when its name was looked up

	period   period
	rotateAt time.Time // when a rotation that failed is tried again
}

func newFiles(c *counters, log zerolog.Logger) *files {
	return &files{
		log: log, counters: c,
		open: make(map[string]*list.Element),
		ends: make(map[string]end), current: make(map[string]string),
		steps: rotationSteps, taken: make(map[string]int), dirty: make(map[*file]struct{}), unrotated: make(map[string]bool),
	}
}

// Prepare makes the member of a batch whose turn it is not yet, on another core.
func (w *files) Prepare(b *buffer.Batch) {
	if spec := b.Spec.(*File); spec.Compress != gzipwriter.Plain && spec.meant == nil {
		w.presses.begin(b, spec)
	}
}

// Forget drops what came of Prepare, if that was called.
func (w *files) Forget(b *buffer.Batch) { w.presses.forget(b) }

// Deliver appends one batch to its file.
func (w *files) Deliver(b *buffer.Batch, _ <-chan struct{}) error {
	spec := b.Spec.(*File)
	w.Tick()
	if !w.stuck.IsZero() && time.Now().After(w.again) {
		w.Reopen()
	}
	if spec.meant != nil {
		there, n, err := spec.meant.settle(b)
		if there || err != nil {
			return err
		}
		spec.meant, spec.skip = nil, n // the spec is of this batch alone
	}
	// Before the file: one that is new is empty for no longer than it must be.
	text, err := w.presses.member(b, spec)
	if err != nil {
		return err
	}
	there, err := w.settleIntent(b, spec, text)
	if err == nil && !there {
		err = w.appendTo(b, spec, text)
	}
	var refused *Refused
	if errors.As(err, &refused) {
		refused.Messages = b.Messages
	}
	return err
}

// appendTo appends the member of a batch to the file of its path.
func (w *files) appendTo(b *buffer.Batch, spec *File, text []byte) error {
	f, err := w.file(b.Key, spec, b.First)
	if err == nil && f.isDue(b.First, len(text)) && w.rotate(f) {
		f, err = w.file(b.Key, spec, b.First)
	}
	if err != nil {
		return err
	}
	err = w.append(f, b, text)
	if spec.Descriptor != nil && errors.Is(err, unix.EPIPE) {
		return &Refused{Reason: Closed, Err: err} // its reader does not come back
	}
	return err
}

// append appends the member of a batch to a file, or nothing on an error.
func (w *files) append(f *file, b *buffer.Batch, text []byte) error {
	f.intend(b, text)
	n, err := gzipwriter.AppendFile(f.out, text)
	buffer.Step("write")
	if n > 0 {
		w.counters.writes.Add(1)
	}
	if err == nil {
		err = w.settle(f, n)
	}
	if err == nil {
		f.made = false
		f.size += int64(n)
		w.retainAll(f.spec)
		return nil
	}
	if f.made || errors.Is(err, gzipwriter.ErrTorn) {
		path := f.path
		w.drop(path)
		delete(w.ends, path)
	}
	if err == io.ErrShortWrite && f.out.Regular() {
		// The kernel takes a part of what has no room, and says why only to
		// who tries the rest. That part is cut off again.
		err = &os.PathError{Op: "write", Path: f.path, Err: unix.ENOSPC}
	}
	return err
}

// file returns the open file of a path, for a batch whose first message was
// received at t.
func (w *files) file(path string, spec *File, t time.Time) (*file, error) {
	if e := w.open[path]; e != nil {
		f := e.Value.(*file)
		w.lookUp(f)
		if w.open[path] == e && f.spec.Compress == spec.Compress && f.spec.Descriptor == spec.Descriptor {
			w.recent.MoveToFront(e)
			w.adopt(f, spec)
			return f, nil
		}
		w.drop(path)
	}
	w.closePast(path, spec)
	for len(w.open) >= max(spec.MaxOpen, 1) {
		w.drop(w.recent.Back().Value.(*file).path)
	}
	f, err := w.openAnew(path, spec, t)
	if errors.Is(err, unix.EMFILE) && len(w.open) > 0 {
		w.drop(w.recent.Back().Value.(*file).path)
		f, err = w.openAnew(path, spec, t)
	}
	if err != nil {
		return nil, err
	}
	w.open[path] = w.recent.PushFront(f)
	return f, nil
}

// adopt makes a file that is open be written as a new spec says.
func (w *files) adopt(f *file, spec *File) {
	if f.spec == spec {
		return
	}
	old := f.spec
	f.spec = spec
	if old.Rotate.Every != spec.Rotate.Every {
		f.period = spec.Rotate.of(f.period.since)
	}
	if spec.Symlink != w.linked {
		w.relink(f)
	}
}

// closePast closes the file that a path follows: its name was that of a time
// that is over.
func (w *files) closePast(path string, spec *File) {
	if !spec.timed {
		return // the sink has one file at a time, or the names have no time
	}
	line := spec.families[0].line(path)
	if line == nil {
		return // the overflow path, which has no time
	}
	key := strings.Join(line, "/")
	if past := w.current[key]; past != path {
		w.drop(past)
	}
	if len(w.current) >= maxEnds {
		clear(w.current)
	}
	w.current[key] = path
}

func (w *files) openAnew(path string, spec *File, t time.Time) (*file, error) {
	f := &file{path: path, spec: spec, os: spec.Descriptor, looked: time.Now()}
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
		return w.openAnew(path, spec, t)
	}
	if err != nil {
		w.close(f)
		delete(w.ends, path)
		return nil, err
	}
	if spec.Descriptor == nil {
		f.measure()
		if f.out.Regular() {
			w.begin(f, t)
		}
	}
	return f, nil
}

// begin notes of a regular file that was opened what it is to be rotated by.
func (w *files) begin(f *file, t time.Time) {
	f.unnamed = f.made
	left, known := w.ends[f.path]
	switch every := f.spec.Rotate.Every; {
	case f.made || every == 0:
		f.period = f.spec.Rotate.of(t)
	case known && !left.period.end.IsZero():
		f.period = left.period
	default:
		f.period = f.spec.Rotate.of(bornAt(f))
	}
	if f.made && f.spec.Keep != (Keep{}) && f.spec.Compress == gzipwriter.Plain {
		if err := markMade(f.fd); err != nil && !w.unmarked {
			w.unmarked = true
			w.log.Warn().Err(err).Str("path", f.path).Msg("files cannot be marked as made by logboom, and are not removed: keep has no effect")
		}
	}
	if !f.made && f.spec.Symlink != w.linked {
		w.relink(f)
	}
}

// measure looks at an open file.
func (f *file) measure() {
	if unix.Fstat(f.fd, &f.stat) == nil {
		f.size = f.stat.Size
	}
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
	if left, ok := w.ends[f.path]; f.made || ok && left.isOf(f) {
		return nil
	}
	if f.spec.Compress != gzipwriter.Plain {
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

// isOf reports whether a file is as it was left.
func (e *end) isOf(f *file) bool {
	var stat unix.Stat_t
	return unix.Fstat(f.fd, &stat) == nil && stat.Ino == e.inode && stat.Size == e.size
}

// drop closes a file that is open.
func (w *files) drop(path string) {
	e := w.open[path]
	if e == nil {
		return
	}
	f := e.Value.(*file)
	w.recent.Remove(e)
	delete(w.open, path)
	w.forgetFailure(f)
	if _, ok := w.dirty[f]; ok {
		w.sync(f)
		delete(w.dirty, f)
	}
	w.close(f)
}

func (w *files) close(f *file) {
	if f.spec.Descriptor != nil {
		return
	}
	if f.out != nil && f.out.Regular() && !f.made {
		if len(w.ends) >= maxEnds {
			clear(w.ends)
		}
		f.measure()
		w.ends[f.path] = end{inode: f.stat.Ino, size: f.size, period: f.period}
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

// Close closes all files.
func (w *files) Close(<-chan struct{}) error {
	w.presses.close()
	for path := range w.open {
		w.drop(path)
	}
	if w.keeper != nil {
		w.keeper.Close()
	}
	return nil
}
