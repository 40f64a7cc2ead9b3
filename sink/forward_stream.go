package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPacket is by how many bytes the kernel exceeds a send buffer: while
	// there is any room it begins one more packet, of the size that
	// segmentation offload works with.
	maxPacket = 64 << 10
	// lingerTimeout bounds the wait for a peer to acknowledge the last bytes.
	lingerTimeout = 2 * time.Second
	// lingerPoll is how often that is looked at: no event tells of it.
	lingerPoll = 5 * time.Millisecond
)

// keepAlive finds out within a minute that the peer of an idle connection is
// gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// past is a deadline that ends whatever waits.
var past = time.Unix(1, 0)

// errEnded says that the peer closed the connection.
var errEnded = errors.New("closed by the peer")

// stream is a connection over TCP.
type stream struct {
	conn     *net.TCPConn
	raw      syscall.RawConn
	counters *counters

	giveUp  <-chan struct{} // what ends a wait,
	unwatch func() bool     // through a goroutine that ends with this

	look    func(fd uintptr) bool // s.read, so that check allocates nothing
	seen    error                 // by it
	scratch [4096]byte            // what peers say is read here and forgotten
}

// openStream connects to host:port. The kernel holds no more bytes unsent
// than the resend window of conf, so that what a break takes can be sent
// again.
func openStream(ctx context.Context, r *net.Resolver, address string, conf *Forward, c *counters) (connection, string, error) {
	d := net.Dialer{
		Resolver: r, KeepAliveConfig: keepAlive,
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			if e := raw.Control(func(fd uintptr) { err = prepare(int(fd), conf) }); e != nil {
				return e
			}
			return err
		},
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", err
	}
	s := &stream{conn: conn.(*net.TCPConn), counters: c}
	s.look = s.read
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		conn.Close()
		return nil, "", err
	}
	return s, conn.RemoteAddr().String(), nil
}

// prepare sets what is to hold from the first byte on.
func prepare(fd int, conf *Forward) error {
	if conf.ResendWindow > 0 {
		// The kernel doubles the value, for what it keeps about the bytes
		// (socket(7)); most of the double can be bytes. A window that is not
		// larger than a packet cannot be kept to.
		size := max(conf.ResendWindow-maxPacket, conf.ResendWindow/8) / 2
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
			return os.NewSyscallError("setsockopt SO_SNDBUF", err)
		}
	}
	// A peer that no longer answers, or takes nothing, is found out even if
	// the few bytes that wait for it never fill the buffer (tcp(7)).
	ms := int(conf.WriteTimeout.Milliseconds())
	return os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms))
}

// check reports an end or reset by the peer. What the peer sends is thrown
// away; one that does not stop is not read to the end.
func (s *stream) check() error {
	s.seen = nil
	if err := s.raw.Read(s.look); err != nil {
		return err
	}
	return s.seen
}

func (s *stream) read(fd uintptr) (done bool) {
	for range 64 {
		n, err := unix.Read(int(fd), s.scratch[:])
		switch {
		case err == unix.EAGAIN:
			return true
		case err == unix.EINTR:
		case err != nil:
			s.seen = os.NewSyscallError("read", err)
			return true
		case n == 0:
			s.seen = errEnded
			return true
		}
	}
	return true
}

// deliver makes one write of it all. After an error the connection is of no
// use: it may have ended in the middle of a frame.
func (s *stream) deliver(text []byte, framing Framing, p *progress, timeout time.Duration, giveUp <-chan struct{}) error {
	s.watch(giveUp)
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	// giveUp may have put the deadline into the past just before it was set.
	if ended(giveUp) {
		return errGivenUp
	}
	n, err := s.conn.Write(text[p.done:])
	s.counters.writes.Add(1)
	s.counters.resent.Add(uint64(p.went(text, framing, n)))
	if err != nil {
		return err
	}
	p.done = len(text)
	return nil
}

// watch lets giveUp end the waits of this connection.
func (s *stream) watch(giveUp <-chan struct{}) {
	if s.unwatch != nil {
		if s.giveUp == giveUp {
			return
		}
		s.unwatch()
	}
	s.giveUp = giveUp
	s.unwatch = context.AfterFunc(until{context.Background(), giveUp}, func() {
		// An error means that it is closed, and nothing waits.
		_ = s.conn.SetDeadline(past)
	})
}

// finish tells the peer that nothing follows and waits a little until it has
// acknowledged all. A close at once could cut the last bytes off: it resets
// the connection if the peer has sent something that was not read.
func (s *stream) finish(giveUp <-chan struct{}) error {
	defer s.close()
	if err := s.conn.CloseWrite(); err != nil {
		return err
	}
	for deadline := time.Now().Add(lingerTimeout); ; {
		left, err := s.unacknowledged()
		if err != nil || left == 0 {
			return err
		}
		if ended(giveUp) || time.Now().After(deadline) {
			return fmt.Errorf("%d bytes not acknowledged", left)
		}
		if err := s.conn.SetReadDeadline(time.Now().Add(lingerPoll)); err != nil {
			return err
		}
		_, err = s.conn.Read(s.scratch[:])
		if err == io.EOF {
			// The peer's end acknowledged what it had got.
			if left, err = s.unacknowledged(); left > 0 {
				err = fmt.Errorf("%w with %d bytes not acknowledged", errEnded, left)
			}
			return err
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// unacknowledged returns how many bytes, an end counted as one, the peer has
// not acknowledged (SIOCOUTQ of tcp(7)).
func (s *stream) unacknowledged() (n int, err error) {
	e := s.raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n, errors.Join(e, err)
}

func (s *stream) close() {
	if s.unwatch != nil {
		s.unwatch()
	}
	// What close could report, a check or a write has, or nobody can mend.
	_ = s.conn.Close()
}
