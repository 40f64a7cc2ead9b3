package proc

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ready is how a program tells that it can serve: by one of Line, TCP and
// Notify. It is RUNNING then and not before, however long it has lived, and
// what is not ready in time is stopped: it has failed to start.
type Ready struct {
	Line    *regexp.Regexp // matches a line of either stream
	TCP     string         // host:port that takes connections
	Notify  bool           // READY=1 by sd_notify(3)
	Timeout time.Duration
}

// dialInterval is how often a port is tried. A refused connection costs some
// microseconds on the loopback device.
const dialInterval = 100 * time.Millisecond

// readiness is what a child tells of itself.
type readiness struct {
	once   sync.Once
	told   chan struct{}     // closed when it is ready
	socket *net.UnixConn     // of Notify, else nil
	sender func(uint32) bool // whose notes count, by uid
}

// tell notes that the child is ready; to say so again does nothing.
func (r *readiness) tell() { r.once.Do(func() { close(r.told) }) }

// isTold reports whether the child has been ready. Of nil it is false.
func (r *readiness) isTold() bool { return r != nil && closed(r.told) }

// newReadiness prepares for a child that cmd is to start; with Notify it is
// told the socket. close ends it.
func (p *Program) newReadiness(cmd *exec.Cmd) (*readiness, error) {
	r := &readiness{told: make(chan struct{})}
	if !p.cfg.Ready.Notify {
		return r, nil
	}
	// A name that the kernel makes up (unix(7), autobind): of this network
	// namespace and no file system, so that it serves every user and directory.
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	if err := passCredentials(socket); err != nil {
		socket.Close()
		return nil, err
	}
	own := uint32(os.Geteuid())
	if p.cfg.User != nil {
		own = p.cfg.User.Uid
	}
	r.socket = socket
	r.sender = func(uid uint32) bool { return uid == own || uid == 0 }
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket.LocalAddr().String())
	return r, nil
}

// passCredentials makes each datagram tell who sent it.
func passCredentials(socket *net.UnixConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	})
	if err == nil {
		err = os.NewSyscallError("setsockopt", failed)
	}
	return err
}

// watch starts what looks for readiness outside of the child's output.
func (r *readiness) watch(p *Program, c *child) {
	if address := p.cfg.Ready.TCP; address != "" {
		p.goroutines.Go(func() { r.dial(address, c.exited) }) // ends with the child, or when it is ready
	}
	if r.socket != nil {
		p.goroutines.Go(r.receive) // ends with close
		p.goroutines.Go(func() {   // ends with the child
			<-c.exited
			r.close()
		})
	}
}

// close frees the socket.
func (r *readiness) close() {
	if r.socket != nil {
		r.socket.Close() // of a socket that only receives: there is nothing to fail
	}
}

// dial tries the port until it answers or the child has exited.
func (r *readiness) dial(address string, exited <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	dialer := net.Dialer{Timeout: time.Second}
	tick := time.NewTicker(dialInterval)
	defer tick.Stop()
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
			r.tell()
			return
		}
		select {
		case <-tick.C:
		case <-exited:
			return
		}
	}
}

// receive reads what sd_notify(3) sends until the socket is closed. It goes on
// after READY=1: a sender must not find its socket gone. Descriptors that come
// along (FDSTORE=1, BARRIER=1) find no room, and the kernel closes them, which
// is what a barrier waits for.
func (r *readiness) receive() {
	text := make([]byte, 4096)
	control := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, cn, _, _, err := r.socket.ReadMsgUnix(text, control)
		if err != nil {
			return
		}
		if uid, ok := senderOf(control[:cn]); !ok || !r.sender(uid) {
			continue
		}
		for line := range bytes.Lines(text[:n]) {
			if string(bytes.TrimSuffix(line, lf)) == "READY=1" {
				r.tell()
			}
		}
	}
}

// senderOf is the user who sent a datagram.
func senderOf(control []byte) (uid uint32, ok bool) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for i := range messages {
		if cred, err := syscall.ParseUnixCredentials(&messages[i]); err == nil {
			return cred.Uid, true
		}
	}
	return 0, false
}

// in returns a handler that looks for a line in what it passes on to next,
// until the child is ready.
func (r *readiness) in(want *regexp.Regexp, next func(Block)) func(Block) {
	return func(b Block) {
		if !closed(r.told) && hasLine(want, b.Text) {
			r.tell()
		}
		next(b)
	}
}

// hasLine reports whether a line of text, taken without its LF, matches.
func hasLine(want *regexp.Regexp, text []byte) bool {
	for line := range bytes.Lines(text) {
		if want.Match(bytes.TrimSuffix(line, lf)) {
			return true
		}
	}
	return false
}

// await waits, before the first start, for what the program depends on. An
// order of the operator ends it.
func (p *Program) await(stop <-chan struct{}) {
	if p.cfg.Gate == nil {
		return
	}
	if !closed(p.cfg.Gate) && p.cfg.Autostart {
		p.log.Info().Msg("waits for what it depends on")
	}
	select {
	case <-p.cfg.Gate:
	case <-p.kick:
	case <-stop:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = false
	p.changeLocked()
}

// Up waits until the program is up: it is RUNNING, or has ended as it should
// after it was. It returns false if stop is closed or Run has returned.
func (p *Program) Up(stop <-chan struct{}) bool {
	for {
		up, changed := p.isUp()
		if up {
			return true
		}
		select {
		case <-changed:
		case <-p.ended:
			return false
		case <-stop:
			return false
		}
	}
}

// isUp looks whether the program is up. If not, changed is closed when it is
// worth to look again.
func (p *Program) isUp() (up bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.status.State
	return state == Running || state == Exited && p.up == p.starts, p.changed
}
