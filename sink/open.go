package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Below the prefix that the operator chose nothing follows a symbolic link,
// since whoever may write there could otherwise lead the daemon elsewhere:
// every folder is opened from the one above it with O_NOFOLLOW.

// openFolder opens the folder of path, which lies below the prefix; with make
// it makes what is missing. The caller closes it.
func openFolder(path string, f *File, make bool) (fd int, err error) {
	fd, err = openPrefix(f.Prefix, 0)
	if err == unix.ENOENT && make {
		if err := makePrefix(f.Prefix, f); err != nil {
			return -1, err
		}
		fd, err = openPrefix(f.Prefix, 0)
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open folder", Path: f.Prefix, Err: err}
	}
	below, err := filepath.Rel(f.Prefix, filepath.Dir(path))
	if err != nil || !filepath.IsLocal(below) {
		unix.Close(fd)
		return -1, &Refused{Reason: RefusedPath, Err: fmt.Errorf("%s is not below %s", path, f.Prefix)}
	}
	if below == "." {
		return fd, nil
	}
	for _, name := range strings.Split(below, "/") {
		next, err := openFolderAt(fd, name)
		if err == unix.ENOENT && make {
			next, err = makeFolderAt(fd, name, f)
		}
		unix.Close(fd)
		if err != nil {
			return -1, f.final(&fs.PathError{Op: "open folder", Path: path, Err: fmt.Errorf("%q: %w", name, err)})
		}
		fd = next
	}
	return fd, nil
}

func openPrefix(prefix string, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) {
		return unix.Open(prefix, flags|unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
}

func openFolderAt(at int, name string) (int, error) {
	return ignoringEINTR(func() (int, error) {
		return unix.Openat(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
}

func makeFolderAt(at int, name string, f *File) (int, error) {
	err := unix.Mkdirat(at, name, uint32(f.DirMode.Perm()))
	if err != nil && err != unix.EEXIST {
		return -1, err
	}
	made := err == nil
	fd, err := openFolderAt(at, name)
	if err != nil || !made {
		return fd, err
	}
	if err := setMode(fd, f.DirMode, f); err != nil {
		unix.Close(fd)
		// Or else the next try would take it for one of the operator's.
		return -1, errors.Join(err, unix.Unlinkat(at, name, unix.AT_REMOVEDIR))
	}
	return fd, nil
}

// makePrefix makes the folders of the prefix that are missing. Those that are
// there are the operator's, symbolic links included.
func makePrefix(prefix string, f *File) error {
	err := os.Mkdir(prefix, f.DirMode.Perm())
	if errors.Is(err, fs.ErrNotExist) {
		if err := makePrefix(filepath.Dir(prefix), f); err != nil {
			return err
		}
		err = os.Mkdir(prefix, f.DirMode.Perm())
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := openPrefix(prefix, unix.O_NOFOLLOW)
	if err == nil {
		err = setMode(fd, f.DirMode, f)
		unix.Close(fd)
	}
	if err == nil && f.namesAreSynced() {
		err = syncFolder(filepath.Dir(prefix))
	}
	if err != nil {
		return errors.Join(&fs.PathError{Op: "make folder", Path: prefix, Err: err}, os.Remove(prefix))
	}
	return nil
}

// openFile opens path for appending, making it if it is missing; made says
// which.
func openFile(path string, f *File) (fd int, made bool, err error) {
	folder, err := openFolder(path, f, true)
	if err != nil {
		return -1, false, err
	}
	defer unix.Close(folder)
	const flags = unix.O_RDWR | unix.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	name := filepath.Base(path)
	openAt := func(flags int) (int, error) {
		return ignoringEINTR(func() (int, error) { return unix.Openat(folder, name, flags, uint32(f.Mode.Perm())) })
	}
	for {
		if fd, err = openAt(flags); err != unix.ENOENT {
			break
		}
		fd, err = openAt(flags | unix.O_CREAT | unix.O_EXCL)
		if made = err == nil; err != unix.EEXIST {
			break
		} // else someone was faster
	}
	if err != nil {
		return -1, false, f.final(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	if made {
		if err := setMode(fd, f.Mode, f); err != nil {
			unix.Close(fd)
			unix.Unlinkat(folder, name, 0)
			return -1, false, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
	return fd, made, nil
}

// RefusedPath is the reason of losses for paths that lead through a symbolic
// link or to what is no file.
const RefusedPath = "refused path"

// Closed is the reason of losses on a standard output that nobody reads any
// more.
const Closed = "closed by its reader"

// final makes an error below the prefix a *Refused if no retry can mend it. A
// name that no sender had a part in is the operator's to mend, as the prefix is.
func (f *File) final(err error) error {
	if !f.varies {
		return err
	}
	for _, code := range []error{unix.ELOOP, unix.ENOTDIR, unix.EISDIR, unix.ENAMETOOLONG} {
		if errors.Is(err, code) {
			return &Refused{Reason: RefusedPath, Err: err}
		}
	}
	return err
}

// setMode gives what was just made its mode and owner, exactly, whatever the
// umask.
func setMode(fd int, mode fs.FileMode, f *File) error {
	if err := unix.Fchmod(fd, uint32(mode.Perm())); err != nil {
		return fmt.Errorf("mode %#o: %w", mode.Perm(), err)
	}
	if f.UID < 0 && f.GID < 0 {
		return nil
	}
	if err := unix.Fchown(fd, f.UID, f.GID); err != nil {
		return fmt.Errorf("owner %d, group %d: %w", f.UID, f.GID, err)
	}
	return nil
}

// removeEmpty removes a file that was made and never written to, if its name
// still leads to it.
func removeEmpty(path string, fd int, f *File) error {
	folder, err := openFolder(path, f, false)
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	var ours, named unix.Stat_t
	if err := unix.Fstat(fd, &ours); err != nil {
		return err
	}
	name := filepath.Base(path)
	if err := unix.Fstatat(folder, name, &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if !isSame(&ours, &named) || ours.Size > 0 {
		return nil
	}
	return unix.Unlinkat(folder, name, 0)
}

func isSame(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// setAside renames a file that must not be appended to, over nothing.
func setAside(path string, f *File) (aside string, err error) {
	folder, err := openFolder(path, f, false)
	if err != nil {
		return "", err
	}
	defer unix.Close(folder)
	name := filepath.Base(path)
	for i := 0; ; i++ {
		aside = name + ".damaged"
		if i > 0 {
			aside = fmt.Sprintf("%s.damaged.%d", name, i)
		}
		if err = unix.Renameat2(folder, name, folder, aside, unix.RENAME_NOREPLACE); err != unix.EEXIST {
			return filepath.Join(filepath.Dir(path), aside), err
		}
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
