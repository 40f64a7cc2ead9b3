package sink

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
)

// A rotation is a row of steps. Where one fails it ends, and is tried again
// with the next batch, a second later at the earliest. Until the file has its
// new name the old one goes on, so no message waits for it. After a kill
// between any two steps nothing is left to be mended.
//
//	finish       the batch before was the last; if the name no longer leads to the
//	             file, someone else has rotated it, and it is reopened instead
//	sync         its bytes are on disk before its name says that it is done
//	publish      it gets its new name, over nothing
//	open         a new file gets its name, by the batch that it was rotated for
//	symlink      the symbolic link leads to the new file
//	sync folder  both names are on disk
//
// The last three are those of every new file, see openAnew and introduce: they
// are tried again with the batch.

// step is one of the first three; each can be taken again.
type step struct {
	name string
	do   func(*files, *file) error
}

// errMoved says that a file's name leads to another, or to none.
var errMoved = errors.New("the file was moved")

var rotationSteps = []step{
	{"finish", (*files).finish},
	{"sync", (*files).syncWhole},
	{"publish", (*files).publish},
}

// isDue reports whether a file ends before a batch of so many bytes, the first
// of which was received at t.
func (f *file) isDue(t time.Time, bytes int) bool {
	r := f.spec.Rotate
	if r == (Rotate{}) || f.made || f.spec.Descriptor != nil || !f.out.Regular() {
		return false
	}
	tooLong := func() bool { return r.Size > 0 && f.size+int64(bytes) > r.Size }
	over := f.period.over(t, r)
	if !over && !tooLong() {
		return false
	}
	f.measure() // it may have been truncated meanwhile
	return f.size > 0 && (over || tooLong())
}

// rotate gives a file its new name and closes it. It reports false where that
// failed: then the file goes on.
func (w *files) rotate(f *file) (done bool) {
	now := time.Now()
	if now.Before(f.rotateAt) {
		return false
	}
	for _, step := range w.steps {
		err := step.do(w, f)
		if err == nil {
			continue
		}
		f.rotateAt = now.Add(time.Second)
		if err == errMoved {
			w.Reopen()
			return w.open[f.path] == nil
		}
		w.rotationFailed(f, step.name, err)
		return false
	}
	w.forgetFailure(f)
	w.drop(f.path)
	delete(w.ends, f.path)
	return true
}

func (w *files) rotationFailed(f *file, at string, err error) {
	if len(w.unrotated) == 0 {
		w.log.Error().Err(err).Str("path", f.path).Str("step", at).Msg("cannot rotate; the file goes on, and it is tried again every second")
	}
	w.unrotated[f.path] = true
}

// forgetFailure notes that a file was rotated, or that it is no longer ours to
// rotate.
func (w *files) forgetFailure(f *file) {
	if !w.unrotated[f.path] {
		return
	}
	delete(w.unrotated, f.path)
	if len(w.unrotated) == 0 {
		w.log.Info().Str("path", f.path).Msg("rotating again")
	}
}

func (w *files) finish(f *file) error {
	if !f.isNamed() {
		return errMoved
	}
	return nil
}

// syncWhole syncs a file whatever its spec says of batches: retention may take
// older files away for its sake.
func (w *files) syncWhole(f *file) error {
	if err := ignoringEINTRError(func() error { return unix.Fsync(f.fd) }); err != nil {
		return &os.PathError{Op: "sync", Path: f.path, Err: err}
	}
	delete(w.dirty, f)
	return nil
}

// publish renames a file over nothing. It is one step and not a link and an
// unlink, between which a kill would leave the file with two names.
func (w *files) publish(f *file) error {
	if !f.isNamed() { // a sync takes time
		return errMoved
	}
	folder, err := openFolder(f.path, f.spec, false)
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	name, now := filepath.Base(f.path), time.Now()
	if second := now.Unix(); second != w.second {
		w.second = second
		clear(w.taken)
	}
	for taken := w.taken[f.path]; ; taken++ {
		to := rotatedName(name, now, taken)
		if err = unix.Renameat2(folder, name, folder, to, unix.RENAME_NOREPLACE); err == nil {
			w.taken[f.path] = taken + 1
			w.log.Debug().Str("path", f.path).Str("renamed_to", to).Msg("rotated")
			return nil
		}
		if err == unix.ENOENT {
			return errMoved
		}
		if err != unix.EEXIST {
			return &os.LinkError{Op: "rename", Old: f.path, New: to, Err: err}
		}
	}
}

// introduce is what follows the first batch of a new file: the symbolic link
// leads to it, and its name outlives a power failure where that is asked for.
// A link that fails holds no message up; it is tried again with the next file.
func (w *files) introduce(f *file) error {
	w.relink(f)
	if f.spec.namesAreSynced() {
		if err := syncFolders(f.path, f.spec); err != nil {
			return err
		}
	}
	f.unnamed = false
	if f.spec.Keep != (Keep{}) {
		w.retainer().lineOf(f.path, f.spec)
	}
	return nil
}

// relink makes the symbolic link lead to a file that is new, or is the first
// that was opened.
func (w *files) relink(f *file) {
	name := f.spec.Symlink
	if w.linked = name; name == "" {
		return
	}
	err := link(name, f.path)
	if err != nil && !w.unlinked {
		w.log.Error().Err(err).Msg("cannot set the symbolic link; it is tried again with the next file")
	}
	w.unlinked = err != nil
}

// bornAt is when what an existing file holds began: by the header of its first
// member, or else when it was written to last.
func bornAt(f *file) time.Time {
	if info, ok := gzipwriter.FirstInfo(f.os); ok {
		return time.Unix(0, info.First)
	}
	var stat unix.Stat_t
	if unix.Fstat(f.fd, &stat) != nil {
		return time.Now()
	}
	return time.Unix(stat.Mtim.Unix())
}
