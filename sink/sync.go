package sink

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sync is when what was written is made to outlive a power failure:
// [SyncNever], [SyncBatch], or the longest time until then.
type Sync time.Duration

const (
	SyncNever Sync = 0  // when the kernel does it
	SyncBatch Sync = -1 // before a batch counts as delivered
)

// settle makes n bytes that were just appended as durable as the spec says,
// and the names of a file that is new. On an error the bytes are taken back,
// so that the batch can be written again: what a failed sync has left of them
// on the disk is not known.
func (w *files) settle(f *file, n int) error {
	var err error
	switch {
	case f.spec.Sync == SyncBatch:
		err = ignoringEINTRError(func() error { return unix.Fdatasync(f.fd) })
	case f.spec.Sync > 0:
		w.dirty[f] = struct{}{}
		if w.syncAt.IsZero() {
			w.syncAt = time.Now().Add(time.Duration(f.spec.Sync))
		}
	}
	if err == nil && f.unnamed {
		err = w.introduce(f)
	}
	if err == nil {
		return nil
	}
	if cutErr := takeBack(f, int64(n)); cutErr != nil {
		return errors.Join(err, cutErr)
	}
	return err
}

// takeBack cuts off the n bytes that were appended last, if they still are the
// end of the file.
func takeBack(f *file, n int64) error {
	written, size, err := f.out.Tail()
	if err == nil && size == written {
		err = f.out.Truncate(written - n)
	}
	return err
}

// Due is when Tick is to be called; zero: not at all. What waits to be synced
// is the only thing that a file sink does by the clock.
func (w *files) Due() time.Time { return w.syncAt }

// Tick syncs what has waited long enough. What fails is tried again after as
// long.
func (w *files) Tick() {
	now := time.Now()
	if w.syncAt.IsZero() || now.Before(w.syncAt) {
		return
	}
	w.syncAt = time.Time{}
	for f := range w.dirty {
		if w.sync(f) != nil {
			w.syncAt = now.Add(time.Duration(f.spec.Sync))
		} else {
			delete(w.dirty, f)
		}
	}
}

// sync syncs a file that was written to, and tells of the first failure and of
// the end of them.
func (w *files) sync(f *file) error {
	err := ignoringEINTRError(func() error { return unix.Fdatasync(f.fd) })
	switch failed := w.unsynced; {
	case err != nil && !failed:
		w.unsynced = true
		w.log.Error().Err(err).Str("path", f.path).Msg("cannot sync; what was written may be lost in a power failure")
	case err == nil && failed:
		w.unsynced = false
		w.log.Info().Msg("syncing again")
	}
	return err
}

// namesAreSynced reports whether the names of new files are to outlive a power
// failure at once.
func (f *File) namesAreSynced() bool { return f.Sync != SyncNever || f.Rotate != (Rotate{}) }

// syncFolder makes the names in a folder outlive a power failure.
func syncFolder(path string) error {
	fd, err := openPrefix(path, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return ignoringEINTRError(func() error { return unix.Fsync(fd) })
}

// syncFolders makes the name of a file outlive a power failure, and those of
// the folders below the prefix that lead to it.
func syncFolders(path string, f *File) error {
	fd, err := openPrefix(f.Prefix, 0)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(f.Prefix, filepath.Dir(path))
	if err != nil {
		unix.Close(fd)
		return err
	}
	for _, name := range strings.Split(below, "/") {
		if name == "." {
			break // it is the prefix itself
		}
		next, openErr := openFolderAt(fd, name)
		err = cmp.Or(openErr, ignoringEINTRError(func() error { return unix.Fsync(fd) }))
		unix.Close(fd)
		if err != nil {
			unix.Close(next)
			return err
		}
		fd = next
	}
	defer unix.Close(fd)
	return ignoringEINTRError(func() error { return unix.Fsync(fd) })
}

func ignoringEINTRError(call func() error) error {
	_, err := ignoringEINTR(func() (int, error) { return 0, call() })
	return err
}
