package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// defaultPipe is the size of a new pipe, and the room that is assumed where
// the kernel does not say (pipe(7)).
const defaultPipe = 64 << 10

// Pipe is an open descriptor that lines are read from. It is never in Go's
// network poller. It has one user at a time.
type Pipe struct {
	fd        int
	name      string // for errors
	size      int    // bytes that fit between two reads
	exclusive bool   // it is a pipe, with a description that nobody shares
	blocking  bool   // a read may block: ask poll(2) first
	regular   bool   // a file: it holds what it holds, there is no waiting
	owned     bool   // ours to close
}

// OpenFIFO opens the FIFO at path, and makes it if it is missing, with exactly
// the permissions of mode, whatever the umask. It is held open both ways, so
// that it has no end of file when a writer goes.
//
// Close leaves it in place, even if it was made here: a writer that has it
// open would lose its reader for good, where the next start takes up what the
// writer goes on writing.
func OpenFIFO(path string, mode fs.FileMode) (*Pipe, error) {
	if err := makeFIFO(path, mode); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Pipe{fd: fd, name: path, size: enlarge(fd), exclusive: true, owned: true}, nil
}

// makeFIFO sees to it that path is a FIFO.
func makeFIFO(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeNamedPipe:
		return fmt.Errorf("%s exists and is no FIFO (%v)", path, info.Mode())
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := unix.Mkfifo(path, uint32(mode.Perm())); err != nil {
		return &fs.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.Chmod(path, mode.Perm()) // what the umask took away
}

// OpenStdin makes standard input readable without blocking, and without
// O_NONBLOCK on the description that it shares with other processes: a pipe or
// a terminal is opened anew through /proc. Where that is refused (a pipe of
// another user), and for sockets, poll(2) is asked before each read, which
// blocks if another process was faster. A regular file is read to its end.
func OpenStdin() (*Pipe, error) { return openShared(0, "standard input") }

func openShared(fd int, name string) (*Pipe, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	kind := st.Mode & unix.S_IFMT
	p := &Pipe{fd: fd, name: name, blocking: true, regular: kind == unix.S_IFREG}
	if kind == unix.S_IFIFO || kind == unix.S_IFCHR {
		again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err == nil {
			p.fd, p.blocking, p.owned = again, false, true
			p.exclusive = kind == unix.S_IFIFO
		}
	}
	p.size = enlarge(p.fd)
	return p, nil
}

// childPipe makes a pipe for a child's output: the read end does not block
// us, the write end is as plain as a shell would make it.
func childPipe(name string) (read *Pipe, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// The two ends are two descriptions, so this is ours alone.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	read = &Pipe{fd: fds[0], name: name, size: enlarge(fds[0]), exclusive: true, owned: true}
	return read, os.NewFile(uintptr(fds[1]), name), nil
}

// enlarge makes a pipe as large as the system allows and returns its size in
// bytes. A user whose pipes hold too much already is refused; then half may be
// granted (pipe(7), pipe-user-pages-soft).
func enlarge(fd int) int {
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return defaultPipe // no pipe
	}
	for want := maxPipe(); want > size; want /= 2 {
		if got, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, want); err == nil {
			return got
		}
	}
	return size
}

// maxPipe is the largest pipe that an unprivileged process may have, in bytes,
// as it was when it was first asked for: a program that crashes in a loop is to
// cost next to nothing.
var maxPipe = sync.OnceValue(func() int {
	text, err := os.ReadFile("/proc/sys/fs/pipe-max-size")
	if err != nil {
		return 1 << 20 // the kernel's default
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 1 << 20
	}
	return n
})

// Size is how many bytes the kernel holds between two reads.
func (p *Pipe) Size() int { return p.size }

// readable says whether a read would not block.
func (p *Pipe) readable() bool {
	if !p.blocking || p.regular {
		return true
	}
	fds := [1]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0
}

// waiting is how many bytes can be read at once. Of a regular file it is none:
// nobody waits for it to be emptied.
func (p *Pipe) waiting() int {
	if p.regular {
		return 0
	}
	n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// Close closes the descriptor, unless it is the shared one of [OpenStdin]. No
// Reader may be running.
func (p *Pipe) Close() error {
	if !p.owned {
		return nil
	}
	p.owned = false
	return os.NewSyscallError("close", unix.Close(p.fd))
}
