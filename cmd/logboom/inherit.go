package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/syslog"
)

// inherited are the sockets that systemd holds for the daemon
// (sd_listen_fds(3)): what is sent while no daemon runs waits in them. They
// are told apart by the address that they are bound to.
type inherited struct {
	log   zerolog.Logger
	files map[Address][]*os.File
	taken []*os.File
}

func inheritSockets(log zerolog.Logger) inherited {
	in := inherited{log: log, files: make(map[Address][]*os.File)}
	for _, f := range activation.Files(true) {
		address, err := boundTo(int(f.Fd()))
		if err != nil {
			log.Warn().Err(err).Str("socket", f.Name()).Msg("systemd handed over what is no socket of ours")
			f.Close()
			continue
		}
		in.files[address] = append(in.files[address], f)
	}
	return in
}

// take gives out a socket that is bound to an address, or -1. Whoever adopts
// it makes a descriptor of its own.
func (in *inherited) take(a Address) int {
	for bound, files := range in.files {
		if len(files) > 0 && bound.Network == a.Network && sameAddress(bound.Address, a.Address) {
			f := files[0]
			in.files[bound] = files[1:]
			in.taken = append(in.taken, f)
			return int(f.Fd())
		}
	}
	return -1
}

// closeRest closes what no source adopted, and says so, since messages sent
// there reach nobody.
func (in *inherited) closeRest() {
	for address, files := range in.files {
		for _, f := range files {
			in.log.Warn().Str("socket", address.String()).Msg("systemd holds a socket that no source listens on")
			f.Close()
		}
	}
	for _, f := range in.taken {
		f.Close()
	}
	in.files, in.taken = nil, nil
}

// boundTo is the address that a socket is bound to, in the config's words.
func boundTo(fd int) (Address, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return Address{}, os.NewSyscallError("getsockopt", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return Address{}, os.NewSyscallError("getsockname", err)
	}
	internet, local := "tcp", "unix"
	if kind == unix.SOCK_DGRAM {
		internet, local = "udp", "unixgram"
	}
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		return Address{internet, net.JoinHostPort(net.IP(n.Addr[:]).String(), strconv.Itoa(n.Port))}, nil
	case *unix.SockaddrInet6:
		return Address{internet, net.JoinHostPort(net.IP(n.Addr[:]).String(), strconv.Itoa(n.Port))}, nil
	case *unix.SockaddrUnix:
		return Address{local, n.Name}, nil
	}
	return Address{}, errors.New("neither an internet nor a unix socket")
}

// sameAddress compares addresses as they may be written: an empty host is any
// address of both families.
func sameAddress(a, b string) bool {
	if a == b {
		return true
	}
	if strings.HasPrefix(a, "/") || strings.HasPrefix(b, "/") {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	ipA, ipB := net.ParseIP(hostA), net.ParseIP(hostB)
	anyA, anyB := hostA == "" || ipA.IsUnspecified(), hostB == "" || ipB.IsUnspecified()
	return anyA && anyB || ipA != nil && ipA.Equal(ipB) || hostA == hostB ||
		(hostA == "localhost" && ipB.IsLoopback()) || (hostB == "localhost" && ipA.IsLoopback())
}

// baselines keep, over restarts and kills, how many datagrams the kernel had
// dropped on each socket: one that systemd holds lives on, and what was told
// before is not told again.
type baselines struct {
	path string
	log  zerolog.Logger

	mu   sync.Mutex // guards the rest
	seen map[string]uint32
	open map[string]*syslog.Datagram // by the socket's cookie
}

func loadBaselines(runtimeDir string, log zerolog.Logger) *baselines {
	b := &baselines{
		path: filepath.Join(runtimeDir, "kernel-drops.json"), log: log,
		seen: make(map[string]uint32), open: make(map[string]*syslog.Datagram),
	}
	data, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return b
	}
	if err == nil {
		err = json.Unmarshal(data, &b.seen)
	}
	if err != nil {
		log.Warn().Err(err).Msg("what the kernel dropped before this start is counted anew")
	}
	return b
}

// track sets the baseline of a socket that was adopted, and remembers it.
func (b *baselines) track(dg *syslog.Datagram, adopted bool) {
	cookie := strconv.FormatUint(dg.Cookie(), 16)
	if adopted {
		dg.SetBaseline(b.seen[cookie])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[cookie] = dg
}

// save writes the baselines of the sockets that are, or were, open.
func (b *baselines) save() {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[string]uint32)
	for cookie, dg := range b.open {
		if n := dg.Drops(); n > 0 {
			seen[cookie] = n
		}
	}
	if maps.Equal(seen, b.seen) {
		return
	}
	data, err := json.Marshal(seen)
	if err == nil {
		err = os.WriteFile(b.path, data, 0o600)
	}
	if err != nil {
		b.log.Warn().Err(err).Msg("cannot keep what the kernel dropped")
	}
	b.seen = seen
}
