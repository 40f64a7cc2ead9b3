package syslog

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DgramQueueLength is net.unix.max_dgram_qlen: how many datagrams wait in a
// unix socket, fixed when the socket is made (unix(7)). 0 if it cannot be read.
func DgramQueueLength() int { return sysctl("net/unix/max_dgram_qlen") }

// RmemMax is net.core.rmem_max: the largest receive buffer in bytes that a
// process without CAP_NET_ADMIN may ask for (socket(7)). 0 if it cannot be read.
func RmemMax() int { return sysctl("net/core/rmem_max") }

func sysctl(name string) int {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

// allowed says whether a peer may send to a source; a nil list allows all.
func allowed(allow []netip.Prefix, peer netip.Addr) bool {
	if allow == nil {
		return true
	}
	for _, prefix := range allow {
		if prefix.Contains(peer) {
			return true
		}
	}
	return false
}

// adoptSocket duplicates a bound socket that was made elsewhere: the caller
// keeps fd. kind is SOCK_DGRAM or SOCK_STREAM; local is a unix socket.
func adoptSocket(fd, kind int, local bool) (int, error) {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return -1, fmt.Errorf("descriptor %d: %w", fd, os.NewSyscallError("getsockopt", err))
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return -1, fmt.Errorf("descriptor %d: %w", fd, os.NewSyscallError("getsockopt", err))
	}
	if got != kind || (domain == unix.AF_UNIX) != local {
		return -1, fmt.Errorf("descriptor %d is a socket of another kind (domain %d, type %d)", fd, domain, got)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("descriptor %d: %w", fd, os.NewSyscallError("fcntl", err))
	}
	return dup, nil
}

// socketAddress is what a socket is bound to: host:port, or a path.
func socketAddress(fd int) (string, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return "", os.NewSyscallError("getsockname", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String(), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String(), nil
	case *unix.SockaddrUnix:
		return sa.Name, nil
	}
	return "", fmt.Errorf("a socket of address family %T", sa)
}

// scan fills the header: the whole text is the message of a raw source.
func (m *Message) scan(text []byte, raw, local bool, r *recent) {
	if raw {
		m.Header = Header{Priority: DefaultPriority, Message: text}
		return
	}
	r.scan(&m.Header, text, local)
}

// socketFile is the name of a unix socket that this process bound. The inode
// tells it from one that another process has put in its place since.
type socketFile struct {
	path     string
	dev, ino uint64
}

// bindUnix makes a unix socket with exactly this mode, whatever the umask, and
// this owner; -1 leaves a uid or gid. A socket file that nobody answers on is
// replaced. Anything else at the path is an error and stays.
func bindUnix(path string, kind int, mode os.FileMode, uid, gid int) (int, *socketFile, error) {
	if len(path) >= len(unix.RawSockaddrUnix{}.Path) {
		return -1, nil, fmt.Errorf("the path %q is %d bytes long, a socket's has %d at most",
			path, len(path), len(unix.RawSockaddrUnix{}.Path)-1)
	}
	if err := clearPath(path, kind); err != nil {
		return -1, nil, err
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return -1, nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, nil, os.NewSyscallError("socket", err)
	}
	// bind(2) gives the file the socket's mode less the umask: so from its
	// first moment it is open to nobody who shall not use it.
	if err := unix.Fchmod(fd, uint32(mode.Perm())); err != nil {
		unix.Close(fd)
		return -1, nil, os.NewSyscallError("fchmod", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, nil, os.NewSyscallError("bind", err)
	}
	file, err := claim(path, mode, uid, gid)
	if err != nil {
		unix.Close(fd)
		os.Remove(path)
		return -1, nil, err
	}
	return fd, file, nil
}

// clearPath takes away a socket file whose process is gone.
func clearPath(path string, kind int) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket (%v): it is left alone", path, info.Mode())
	}
	probe, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(probe)
	switch err := unix.Connect(probe, &unix.SockaddrUnix{Name: path}); err {
	case unix.ECONNREFUSED:
		return os.Remove(path)
	case unix.ENOENT:
		return nil
	case nil, unix.EAGAIN, unix.EPROTOTYPE: // a full backlog and another type of socket are alive too
		return fmt.Errorf("another process listens on %s", path)
	default:
		return fmt.Errorf("%s: %w", path, os.NewSyscallError("connect", err))
	}
}

// makeFolder makes a folder and those above it, mode 0755 whatever the umask:
// a web server's worker must be able to reach the socket.
func makeFolder(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// claim sets mode and owner of the socket file just bound, and notes its
// inode. It goes through a descriptor, so that a symbolic link put there
// meanwhile is not followed.
func claim(path string, mode os.FileMode, uid, gid int) (*socketFile, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s was replaced while it was being made", path)
	}
	if uid >= 0 || gid >= 0 {
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return nil, &fs.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	// chmod(2) is not made for an O_PATH descriptor; its name in /proc is.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), uint32(mode.Perm())); err != nil {
		return nil, &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	return &socketFile{path: path, dev: uint64(st.Dev), ino: st.Ino}, nil
}

// remove deletes the socket file if it is still the one that was bound.
func (f *socketFile) remove() error {
	if f == nil {
		return nil
	}
	var st unix.Stat_t
	switch err := unix.Lstat(f.path, &st); {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return &fs.PathError{Op: "stat", Path: f.path, Err: err}
	case uint64(st.Dev) != f.dev || st.Ino != f.ino:
		return nil
	}
	return os.Remove(f.path)
}
