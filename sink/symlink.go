package sink

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// link makes the symbolic link lead to a file, in one step, so that whoever
// opens it finds the old file or the new one. It replaces nothing but a link.
func link(name, path string) error {
	to := path
	// A link that does not leave its folder holds where that is mounted elsewhere.
	if below, err := filepath.Rel(filepath.Dir(name), path); err == nil && !strings.HasPrefix(below, "../") {
		to = below
	}
	var stat unix.Stat_t
	switch err := unix.Lstat(name, &stat); {
	case err == nil && stat.Mode&unix.S_IFMT != unix.S_IFLNK:
		return fmt.Errorf("symlink %s: something else has that name", name)
	case err == nil && leadsTo(name, to):
		return nil
	case err != nil && err != unix.ENOENT:
		return fmt.Errorf("symlink %s: %w", name, err)
	}
	// A start that was killed in between may have left it.
	fresh := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".new")
	if err := unix.Unlink(fresh); err != nil && err != unix.ENOENT {
		return fmt.Errorf("symlink %s: %w", fresh, err)
	}
	err := unix.Symlink(to, fresh)
	if err == nil {
		if err = unix.Rename(fresh, name); err != nil {
			err = errors.Join(err, unix.Unlink(fresh))
		}
	}
	if err != nil {
		return fmt.Errorf("symlink %s: %w", name, err)
	}
	return nil
}

func leadsTo(name, to string) bool {
	text := make([]byte, len(to)+1)
	n, err := unix.Readlink(name, text)
	return err == nil && string(text[:n]) == to
}
