package sink

import (
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

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

// lookUp notices, once a second at most, that the name of an open file leads
// to another or to none: someone moved or removed it. Then it is as after a
// Reopen, since rarely one file alone is moved.
func (w *files) lookUp(f *file) {
	now := time.Now()
	if f.spec.Descriptor != nil || now.Sub(f.looked) < time.Second {
		return
	}
	f.looked = now
	if f.isNamed() || !w.stuck.IsZero() {
		return
	}
	w.log.Info().Str("path", f.path).Msg("the file was moved or removed; it is made anew")
	w.Reopen()
}

// isNamed reports whether a file's name leads to it.
func (f *file) isNamed() bool {
	var named unix.Stat_t
	err := ignoringEINTRError(func() error { return unix.Fstatat(unix.AT_FDCWD, f.path, &named, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && isSame(&named, &f.stat)
}
