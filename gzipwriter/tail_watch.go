package gzipwriter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a followed file is looked at without an event: on a
// network file system none comes for what others write.
const lookEvery = time.Second

// watch waits for changes of a file, and of what its name leads to, by
// inotify(7).
type watch struct {
	inotify *os.File
	base    string // the name within its folder
	folder  int32  // the folder's watch
	buf     [16 << 10]byte
}

// openWatch watches the name, whether a file has it or not. Its folder must
// exist.
func openWatch(name string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &watch{inotify: os.NewFile(uintptr(fd), "inotify"), base: filepath.Base(name)}
	dir := filepath.Dir(name)
	folder, err := unix.InotifyAddWatch(fd, dir,
		unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE|unix.IN_ONLYDIR)
	if err != nil {
		w.close()
		return nil, &os.PathError{Op: "watch", Path: dir, Err: err}
	}
	w.folder = int32(folder)
	return w, nil
}

func (w *watch) close() { w.inotify.Close() }

// follow watches the open file too, whatever name it has or gets.
func (w *watch) follow(f *os.File) (err error) {
	conn, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	ctlErr := conn.Control(func(fd uintptr) {
		_, err = unix.InotifyAddWatch(int(fd), path, unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_MOVE_SELF)
	})
	if err != nil {
		err = &os.PathError{Op: "watch", Path: f.Name(), Err: err}
	}
	return errors.Join(ctlErr, err)
}

// wait returns when something may have changed, or lookEvery has passed. The
// error is that of ctx once it is done.
func (w *watch) wait(ctx context.Context) error {
	if err := w.inotify.SetReadDeadline(time.Now().Add(lookEvery)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { w.inotify.SetReadDeadline(time.Now()) })
	defer stop()
	for {
		n, err := w.inotify.Read(w.buf[:])
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		case w.concerns(w.buf[:n]):
			return nil
		}
	}
}

// concerns says whether one of the events is about the file or its name: the
// folder may be full of others. An overflow of the queue is.
func (w *watch) concerns(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		// struct inotify_event: int wd; uint32_t mask, cookie, len; char name[len].
		wd := int32(binary.NativeEndian.Uint32(events))
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name := strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")
		if wd != w.folder || name == w.base {
			return true
		}
		events = events[end:]
	}
	return false
}
