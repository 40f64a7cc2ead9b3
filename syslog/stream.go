package syslog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Keep-alive of TCP connections: a peer that a firewall has cut off is gone
// after 90 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 10 * time.Second, Count: 3}

// Pauses of the accept loop while descriptors or memory are short.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// StreamConfig says where connections are accepted and who takes their
// messages.
type StreamConfig struct {
	Network string // "tcp" or "unix"
	Address string // host:port, or the path of the socket
	FD      int    // a listening socket to duplicate and use instead of binding; -1: none

	Raw            bool // each frame is a message, without parsing
	Framing        Framing
	MaxMessage     int           // bytes of a frame
	MaxConnections int           // more are closed when they are accepted
	IdleTimeout    time.Duration // after which a frame that is half received is given out; 0: never

	Mode     os.FileMode // of a unix socket that is made, whatever the umask
	UID, GID int         // its owner; -1 leaves it

	Allow []netip.Prefix // tcp: peers; nil: all

	// Reserve takes n bytes of the daemon's memory for a half-received frame
	// over 4 KiB, Release gives them back. Where it says no, its connection is
	// not read until there is room, or IdleTimeout has the frame given out.
	Reserve func(n int) bool
	Release func(n int)

	// Window is asked for memory of n bytes that outlives the process. Then
	// Reserve is not. It may return nil, as it may be.
	Window func(n int) StreamWindow

	// Handler takes the messages of one read of one connection, in order, and
	// the window that they lie in, or nil: what it notes there of them is kept
	// with it. They are borrowed for the call. While it blocks, that connection
	// is not read. Calls for different connections run at the same time.
	Handler func(ms []Message, w StreamWindow)

	Log zerolog.Logger
}

// StreamStats are counts since the socket was opened.
type StreamStats struct {
	Connections   int    // open now
	Accepted      uint64 // that were served
	Refused       uint64 // closed at once: over MaxConnections, or from peers that are not allowed
	FramingErrors uint64 // connections closed for what they sent
	Truncated     uint64 // messages
	Partial       uint64 // messages
}

// Stream receives messages from the connections to a stream socket.
type Stream struct {
	cfg     StreamConfig
	ln      listener
	address string
	local   bool // a unix socket

	accepted, refused, framingErrors, truncated, partial atomic.Uint64

	// batches holds *[]Message for connections that hand out: an idle one has
	// none.
	batches sync.Pool

	retired chan struct{} // closed by Retire

	mu    sync.Mutex // guards the fields below
	conns map[*conn]struct{}
	spare []StreamWindow // that no connection has
	full  bool           // connections are being refused, and that was logged
	file  *socketFile
}

// listener is a [net.TCPListener] or a [net.UnixListener].
type listener interface {
	net.Listener
	SetDeadline(time.Time) error
	SyscallConn() (syscall.RawConn, error)
}

// ListenStream binds, or adopts, a socket. Errors name the address.
func ListenStream(cfg StreamConfig) (*Stream, error) {
	s := newStream(cfg)
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("listen %s://%s: %w", cfg.Network, cfg.Address, err)
	}
	return s, nil
}

func newStream(cfg StreamConfig) *Stream {
	s := &Stream{cfg: cfg, local: cfg.Network == "unix", conns: make(map[*conn]struct{}), retired: make(chan struct{})}
	s.batches.New = func() any { ms := make([]Message, 0, batchSize); return &ms }
	return s
}

func (s *Stream) open() error {
	switch {
	case s.cfg.Handler == nil || s.cfg.Reserve == nil || s.cfg.Release == nil:
		return errors.New("a handler, and reserve and release, are needed")
	case s.cfg.MaxMessage <= 0 || s.cfg.MaxConnections <= 0:
		return fmt.Errorf("max message of %d bytes, %d connections", s.cfg.MaxMessage, s.cfg.MaxConnections)
	case s.cfg.Network != "tcp" && s.cfg.Network != "tcp4" && s.cfg.Network != "tcp6" && !s.local:
		return errors.New("not a stream network")
	}
	switch {
	case s.cfg.FD >= 0:
		fd, err := adoptSocket(s.cfg.FD, unix.SOCK_STREAM, s.local)
		if err != nil {
			return err
		}
		return s.use(fd)
	case s.local:
		fd, file, err := bindUnix(s.cfg.Address, unix.SOCK_STREAM, s.cfg.Mode, s.cfg.UID, s.cfg.GID)
		if err != nil {
			return err
		}
		s.file = file
		if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
			return errors.Join(os.NewSyscallError("listen", err), unix.Close(fd), file.remove())
		}
		return s.use(fd)
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false) // what an adopting process expects, and the faster
	ln, err := config.Listen(context.Background(), s.cfg.Network, s.cfg.Address)
	if err != nil {
		return err
	}
	s.ln, s.address = ln.(listener), ln.Addr().String()
	return nil
}

// use makes a listener of a descriptor, which it takes over.
func (s *Stream) use(fd int) error {
	address, err := socketAddress(fd)
	f := os.NewFile(uintptr(fd), s.cfg.Address)
	defer f.Close() // the listener has a duplicate
	if err != nil {
		return err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return err
	}
	s.ln, s.address = ln.(listener), address
	if unixListener, ok := ln.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false) // Close removes the file if it is ours
	}
	return nil
}

// Run serves connections until stop is closed. Then it accepts no more, takes
// from each what the kernel already holds of it, closes it, and returns nil; or
// it returns the error that made it end. It runs once.
func (s *Stream) Run(stop <-chan struct{}) error {
	var workers sync.WaitGroup
	ended := make(chan struct{})
	workers.Go(func() { // ends with stop, with Retire or with the accept loop
		select {
		case <-stop:
		case <-s.retired:
		case <-ended:
			return
		}
		s.ln.SetDeadline(time.Unix(1, 0)) // wakes Accept; a closed listener was woken already
	})
	err := s.accept(stop, &workers)
	close(ended)
	if stopped(s.retired) {
		s.waitForPeers(stop, &workers)
	}
	s.mu.Lock()
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	workers.Wait()
	if err != nil {
		return fmt.Errorf("accept on %s://%s: %w", s.cfg.Network, s.address, err)
	}
	return nil
}

// waitForPeers returns when the last connection has ended or stop is closed.
func (s *Stream) waitForPeers(stop <-chan struct{}, workers *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { // ends with the connections, which end with Run at the latest
		workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-stop:
	}
}

// accept is the accept loop: it survives want of descriptors and of memory.
func (s *Stream) accept(stop <-chan struct{}, workers *sync.WaitGroup) error {
	var pause time.Duration // 0 while all is well
	for {
		nc, err := s.ln.Accept()
		switch {
		case err == nil:
			if pause > 0 {
				pause = 0
				s.cfg.Log.Info().Str("address", s.address).Msg("connections are accepted again")
			}
			s.serve(nc, workers)
		case stopped(stop), stopped(s.retired):
			return nil
		case shortage(err):
			if pause == 0 {
				pause = minAcceptPause
				s.cfg.Log.Error().Err(err).Str("address", s.address).Msg("connections wait: accept fails")
			}
			select {
			case <-time.After(pause):
			case <-stop:
			}
			pause = min(2*pause, maxAcceptPause)
		default:
			return err
		}
	}
}

// shortage says whether accept(2) failed for what may come back.
func shortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) ||
		errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// serve starts a connection's goroutine, or closes the connection.
func (s *Stream) serve(nc net.Conn, workers *sync.WaitGroup) {
	peer := peerAddr(nc)
	if !s.local && !allowed(s.cfg.Allow, peer) {
		s.refused.Add(1)
		nc.Close()
		return
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetKeepAliveConfig(keepAlive) // fails only on a connection that is gone already
	}
	c := newConn(s, nc, peer)
	if !s.enter(c) {
		nc.Close()
		return
	}
	s.accepted.Add(1)
	workers.Go(func() { // ends with the connection, which finish makes end
		defer s.leave(c)
		c.run()
	})
}

// enter registers a connection, unless there are too many: that is logged once
// until a connection is accepted again.
func (s *Stream) enter(c *conn) bool {
	s.mu.Lock()
	over := len(s.conns) >= s.cfg.MaxConnections
	first := over && !s.full
	s.full = over
	if !over {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if over {
		s.refused.Add(1)
	}
	if first {
		s.cfg.Log.Warn().Str("address", s.address).Str("peer", c.peer).
			Int("max_connections", s.cfg.MaxConnections).Msg("too many connections: refused")
	}
	return !over
}

func (s *Stream) leave(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// peerAddr is the address of a connection's peer; invalid on a unix socket.
func peerAddr(nc net.Conn) netip.Addr {
	if tcp, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// FD is the listening socket, for whoever adopts it; -1 once it is closed. It
// is the Stream's until Close.
func (s *Stream) FD() int {
	fd := -1
	if raw, err := s.ln.SyscallConn(); err == nil {
		raw.Control(func(u uintptr) { fd = int(u) })
	}
	return fd
}

// Addr is the address bound: host:port, or the path.
func (s *Stream) Addr() string { return s.address }

// Stats may be called by any goroutine.
func (s *Stream) Stats() StreamStats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	return StreamStats{
		Connections:   open,
		Accepted:      s.accepted.Load(),
		Refused:       s.refused.Load(),
		FramingErrors: s.framingErrors.Load(),
		Truncated:     s.truncated.Load(),
		Partial:       s.partial.Load(),
	}
}

// Retire ends the accepting of connections, because another Stream has adopted
// the socket: those that are open are served until their peers close them, or
// Run's stop is closed. Call it once.
func (s *Stream) Retire() { close(s.retired) }

// Close closes the socket and removes the file of a unix socket that
// ListenStream made, if it is still that. Run must have returned. A second
// Close does nothing.
func (s *Stream) Close() error {
	s.mu.Lock()
	file := s.file
	s.file = nil
	s.mu.Unlock()
	err := s.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(file.remove(), s.GiveBack(), err)
}
