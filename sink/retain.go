package sink

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
)

// Keep bounds the files of one line of descent (see family), beside the newest
// of them; zero: no bound.
type Keep struct {
	Files int
	Bytes int64
	Age   time.Duration // since a file was written to last; of the newest too
}

// retainer removes files that are too many, too large together or too old, in
// a goroutine of its own: the writer does not wait for it. It is woken by new
// files, and once an hour while files are written; it has no timer.
//
// A file is removed only if its name is one of the path's, logboom made it,
// and nobody has it locked, which whoever writes to it has.
type retainer struct {
	log  zerolog.Logger
	wake chan struct{}
	stop chan struct{} // closed by Close
	done chan struct{} // closed when the goroutine has ended

	mu   sync.Mutex         // guards what is wanted
	some map[string]request // by line of descent
	all  *File              // how files are written, if all are to be looked at
}

// retainAll has all files looked at once an hour while they are written. By
// then something was, so the first time is at the first batch.
func (w *files) retainAll(spec *File) {
	if spec.Keep == (Keep{}) || spec.Descriptor != nil {
		return
	}
	if now := time.Now(); now.After(w.keepAt) {
		w.keepAt = now.Add(time.Hour)
		w.retainer().everything(spec)
	}
}

func (w *files) retainer() *retainer {
	if w.keeper == nil {
		w.keeper = newRetainer(w.log)
	}
	return w.keeper
}

// request asks for one line of descent.
type request struct {
	spec   *File
	family *family
	line   []string // nil: all
}

func newRetainer(log zerolog.Logger) *retainer {
	r := &retainer{
		log: log, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		some: make(map[string]request),
	}
	go r.run()
	return r
}

// lineOf asks for the line of descent of a path.
func (r *retainer) lineOf(path string, spec *File) {
	for _, family := range spec.families {
		if line := family.line(path); line != nil {
			r.mu.Lock()
			r.some[strings.Join(line, "/")] = request{spec, family, line}
			r.mu.Unlock()
			r.nudge()
			return
		}
	}
}

// everything asks for all lines of descent: for those too that are no longer
// written.
func (r *retainer) everything(spec *File) {
	r.mu.Lock()
	r.all = spec
	r.mu.Unlock()
	r.nudge()
}

func (r *retainer) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close ends the goroutine. What was asked for and not begun is left.
func (r *retainer) Close() {
	close(r.stop)
	<-r.done
}

func (r *retainer) run() {
	defer close(r.done)
	for {
		select {
		case <-r.stop:
			return
		case <-r.wake:
		}
		r.mu.Lock()
		some, all := r.some, r.all
		r.some, r.all = make(map[string]request), nil
		r.mu.Unlock()
		if all != nil {
			for _, family := range all.families {
				r.pass(request{spec: all, family: family})
			}
		}
		for _, one := range some {
			r.pass(one)
		}
	}
}

// pass looks at one line of descent, or at all, and removes what is too much.
func (r *retainer) pass(want request) {
	w := &walk{request: want, stop: r.stop, now: time.Now()}
	fd, err := openPrefix(want.spec.Prefix, 0)
	if err == nil {
		w.folder(fd, want.spec.Prefix, 0, nil)
		unix.Close(fd)
	} else if err != unix.ENOENT {
		w.note(&os.PathError{Op: "open folder", Path: want.spec.Prefix, Err: err})
	}
	if w.removed > 0 {
		r.log.Info().Int("files", w.removed).Int64("bytes", w.bytes).Str("last", w.last).Msg("old files removed")
	}
	if w.err != nil {
		r.log.Error().Err(w.err).Int("errors", w.errors).Msg("old files cannot be removed; it is tried again with the next pass")
	}
}

// walk is one pass.
type walk struct {
	request
	stop <-chan struct{}
	now  time.Time

	removed int
	bytes   int64
	last    string // path that was removed
	errors  int
	err     error // the first
}

// relative is a file of a line of descent.
type relative struct {
	path string
	stat unix.Stat_t
}

// folder walks over a folder that is at a depth below the prefix. Where the
// lines of descent part for good, each is judged as soon as it is known whole:
// so what is remembered is that of one folder, not of all.
func (w *walk) folder(fd int, path string, depth int, lines map[string][]relative) {
	if depth == w.family.first {
		lines = make(map[string][]relative)
		defer func() { w.judge(lines) }()
	}
	names, err := w.names(fd, depth)
	if err != nil {
		w.note(&os.PathError{Op: "read folder", Path: path, Err: err})
		return
	}
	last := depth == len(w.family.below)-1
	for _, name := range names {
		if ended(w.stop) {
			return
		}
		timeless, ok := w.family.timeless(depth, name)
		if !ok || w.line != nil && timeless != w.line[depth] {
			continue
		}
		below := filepath.Join(path, name)
		if !last {
			if next, err := openFolderAt(fd, name); err == nil {
				w.folder(next, below, depth+1, lines)
				unix.Close(next)
			}
			continue
		}
		file := relative{path: below}
		if unix.Fstatat(fd, name, &file.stat, unix.AT_SYMLINK_NOFOLLOW) == nil && file.stat.Mode&unix.S_IFMT == unix.S_IFREG {
			key := strings.Join(w.family.line(below), "/")
			lines[key] = append(lines[key], file)
		}
	}
}

// names are those in a folder that may be of the line that is wanted.
func (w *walk) names(fd, depth int) ([]string, error) {
	if last := depth == len(w.family.below)-1; !last && w.line != nil && strings.IndexByte(w.line[depth], 0) < 0 {
		return []string{w.line[depth]}, nil // it is the only one
	}
	again, err := openFolderAt(fd, ".") // whose offset is its own
	if err != nil {
		return nil, err
	}
	folder := os.NewFile(uintptr(again), ".")
	defer folder.Close()
	return folder.Readdirnames(-1)
}

// judge removes what is too much of each line of descent.
func (w *walk) judge(lines map[string][]relative) {
	for _, files := range lines {
		if ended(w.stop) {
			return
		}
		slices.SortFunc(files, func(a, b relative) int {
			return -cmp.Or(cmp.Compare(a.stat.Mtim.Nano(), b.stat.Mtim.Nano()), cmp.Compare(a.path, b.path))
		})
		if len(w.tooMuch(files)) == 0 {
			continue
		}
		// Now it is worth a look which are ours; others do not count.
		files = slices.DeleteFunc(files, func(f relative) bool { return !w.isOurs(f) })
		for _, f := range w.tooMuch(files) {
			w.remove(f)
		}
	}
}

// tooMuch returns which of the files, the newest first, are beyond a bound.
func (w *walk) tooMuch(files []relative) (beyond []relative) {
	keep := w.spec.Keep
	bytes := int64(0)
	for i, f := range files {
		old := keep.Age > 0 && w.now.Sub(time.Unix(f.stat.Mtim.Unix())) > keep.Age
		if i > 0 {
			bytes += f.stat.Size
			old = old || keep.Files > 0 && i > keep.Files || keep.Bytes > 0 && bytes > keep.Bytes
		}
		if old {
			beyond = append(beyond, f)
		}
	}
	return beyond
}

// isOurs reports whether logboom made a file. What cannot be told is not ours.
func (w *walk) isOurs(f relative) bool {
	fd, err := w.open(f)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), f.path)
	defer file.Close()
	if _, ok := gzipwriter.FirstInfo(file); ok {
		return true
	}
	return isMarked(fd)
}

// open opens a file for reading, if its name still leads to it. The caller
// closes it.
func (w *walk) open(f relative) (int, error) {
	folder, err := openFolder(f.path, w.spec, false)
	if err != nil {
		return -1, err
	}
	defer unix.Close(folder)
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(folder, filepath.Base(f.path), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || !isSame(&stat, &f.stat) {
		unix.Close(fd)
		return -1, cmp.Or(err, error(unix.ESTALE))
	}
	return fd, nil
}

// remove removes a file that nobody writes to, and folders that are empty
// without it.
func (w *walk) remove(f relative) {
	fd, err := w.open(f)
	if err != nil {
		return // it is gone, or another by now
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	if err := removeNamed(f.path, w.spec); err != nil {
		w.note(&os.PathError{Op: "remove", Path: f.path, Err: err})
		return
	}
	w.removed++
	w.bytes += f.stat.Size
	w.last = f.path
}

func (w *walk) note(err error) {
	w.err = cmp.Or(w.err, err)
	w.errors++
}

// removeNamed removes a name, and the folders below the prefix that have
// nothing else in them.
func removeNamed(path string, spec *File) error {
	folder, err := openFolder(path, spec, false)
	if err != nil {
		return err
	}
	err = unix.Unlinkat(folder, filepath.Base(path), 0)
	unix.Close(folder)
	for err == nil {
		if path = filepath.Dir(path); path == spec.Prefix {
			return nil
		}
		above, openErr := openFolder(path, spec, false)
		if openErr != nil {
			return nil
		}
		stop := unix.Unlinkat(above, filepath.Base(path), unix.AT_REMOVEDIR)
		unix.Close(above)
		if stop != nil {
			return nil // it is not empty
		}
	}
	return err
}

// madeMark is the extended attribute of plain files that logboom made, which
// have no header to tell it by (xattr(7)).
const madeMark = "user.logboom"

// markMade marks a plain file that was just made. Where the file system has no
// such attributes, it is never removed.
func markMade(fd int) error {
	return ignoringEINTRError(func() error { return unix.Fsetxattr(fd, madeMark, []byte{'1'}, 0) })
}

func isMarked(fd int) bool {
	var value [8]byte
	n, err := unix.Fgetxattr(fd, madeMark, value[:])
	return n > 0 && (err == nil || errors.Is(err, unix.ERANGE))
}
