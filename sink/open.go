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
	prefix := f.Prefix
	if make {
		if err := makePrefix(prefix, f); err != nil {
			return -1, err
		}
	}
	fd, err = ignoringEINTR(func() (int, error) {
		return unix.Open(prefix, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: prefix, Err: err}
	}
	below, err := filepath.Rel(prefix, filepath.Dir(path))
	if err != nil || !filepath.IsLocal(below) {
		unix.Close(fd)
		return -1, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("not below %s", prefix)}
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
			return -1, &fs.PathError{Op: "open folder", Path: path, Err: fmt.Errorf("%q: %w", name, err)}
		}
		fd = next
	}
	return fd, nil
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
		return -1, err
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
		// A folder that exists where none may be made says EROFS or EACCES.
		if stat, statErr := os.Stat(prefix); statErr == nil && stat.IsDir() {
			return nil
		}
		return err
	}
	fd, err := unix.Open(prefix, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: prefix, Err: err}
	}
	defer unix.Close(fd)
	return setMode(fd, f.DirMode, f)
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
	fd, err = ignoringEINTR(func() (int, error) { return unix.Openat(folder, name, flags, 0) })
	if err == unix.ENOENT {
		made = true
		fd, err = ignoringEINTR(func() (int, error) {
			return unix.Openat(folder, name, flags|unix.O_CREAT|unix.O_EXCL, uint32(f.Mode.Perm()))
		})
	}
	if err != nil {
		return -1, false, &fs.PathError{Op: "open", Path: path, Err: err}
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

// removeEmpty removes a file that was made and never written to.
func removeEmpty(path string, f *File) error {
	folder, err := openFolder(path, f, false)
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	return unix.Unlinkat(folder, filepath.Base(path), 0)
}

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
