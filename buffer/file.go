package buffer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// filePrefix is how the names of all arenas begin.
const filePrefix = "arena-"

// CreateArena makes an arena of size bytes whose memory is a new file in dir,
// mapped: what it holds outlives the process. The space is reserved here, so
// that a file system that is full is an error now and no SIGBUS later. The
// generation is greater than that of all arenas that were left behind.
//
// The file is locked for as long as the process lives (flock(2)).
func CreateArena(dir string, size int, generation uint64) (*Arena, error) {
	s, err := createSegment(dir, size, generation)
	if err != nil {
		return nil, err
	}
	return newArena(s), nil
}

func createSegment(dir string, size int, generation uint64) (*segment, error) {
	n, err := pagesOf(size)
	if err != nil {
		return nil, err
	}
	id := rand.Uint64()
	path := filepath.Join(dir, fmt.Sprintf("%s%016x", filePrefix, id))
	f, err := createLocked(path, os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("arena: %w", err)
	}
	all, err := reserve(f, regionSize(n))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("arena %s of %d bytes: %w", path, size, err), f.Close(), os.Remove(path))
	}
	return newSegment(all, n, f, id, generation), nil
}

// createLocked makes a file and locks it. Before it is locked, another process
// may take it for one that was left behind empty, and remove it: then it is made
// again.
func createLocked(path string, flags int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flags|os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
				break
			}
		}
		if err != nil {
			return nil, errors.Join(os.NewSyscallError("flock", err), f.Close(), os.Remove(path))
		}
		if !isRemoved(f) {
			return f, nil
		}
		f.Close()
	}
}

// isRemoved reports whether an open file has no name any more. One that is
// locked keeps its name or has none: files are removed under their lock alone.
func isRemoved(f *os.File) bool {
	var stat unix.Stat_t
	return unix.Fstat(int(f.Fd()), &stat) == nil && stat.Nlink == 0
}

// reserve gives a new file n bytes, maps them and touches each page, so that no
// store and no copy of the kernel's waits for one.
func reserve(f *os.File, n int) ([]byte, error) {
	var err error
	for { // a signal ends it early, the runtime's among them
		if err = unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reserving space: %w", err)
	}
	all, err := mapFile(f, n)
	if err != nil {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	if unix.Madvise(all, unix.MADV_POPULATE_WRITE) != nil { // before Linux 5.14
		for i := 0; i < n; i += PageSize {
			all[i] = 0
		}
	}
	return all, nil
}

// Lock keeps the memory from being written out (mlock(2)), so that the kernel
// never has to fetch a page while it copies a message. It may be refused:
// RLIMIT_MEMLOCK.
func (a *Arena) Lock() error {
	return os.NewSyscallError("mlock", unix.Mlock(a.segment().all))
}

// IsOnTmpfs reports whether the file of an arena lies in memory. On a disk the
// kernel writes its pages out time and again, and stores wait for that.
func (a *Arena) IsOnTmpfs() bool {
	var fs unix.Statfs_t
	err := unix.Fstatfs(int(a.segment().file.Fd()), &fs)
	return err == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC)
}

// SetOwner keeps a text in the file for whoever finds it: what is needed to
// deliver what it holds. False if it is too long.
func (a *Arena) SetOwner(text []byte) bool { return a.segment().setOwner(text) }

// Save writes the batches that are not done into small arenas of their own in
// dir, and removes the files: all that is wanted of them is there. It returns
// the paths, none if there is nothing to save. Nobody may append meanwhile, and
// the memory can still be used: a runner that is stuck in a write may do so.
func (a *Arena) Save(dir string) (paths []string, err error) {
	for _, s := range a.segments() {
		path, failed := s.save(dir)
		if path != "" {
			paths = append(paths, path)
		}
		if failed == nil {
			failed = s.remove()
		}
		err = errors.Join(err, failed)
	}
	return paths, err
}

// Remove removes the files: nothing in them is wanted.
func (a *Arena) Remove() (err error) {
	for _, s := range a.segments() {
		err = errors.Join(err, s.remove())
	}
	return err
}

func (a *Arena) segments() []*segment {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(slices.Clone(a.old), a.current)
}

// remove removes the file, once. The memory can still be used.
func (s *segment) remove() error {
	if s.file == nil {
		return nil
	}
	err := os.Remove(s.file.Name())
	if errors.Is(err, os.ErrNotExist) {
		err = nil // removed before
	}
	return errors.Join(err, s.file.Close())
}
