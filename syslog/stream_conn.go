package syslog

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A read asks for this many bytes: an idle connection holds at most twice the
// larger, plus what is unfinished.
const (
	minRead = 4 << 10
	maxRead = 8 << 10
)

// batchSize is how many messages a handler is given at most.
const batchSize = 64

// freeFrame is up to how many bytes a half-received frame is not reserved.
const freeFrame = 4 << 10

// reservePause is how often a connection asks again for memory.
const reservePause = 20 * time.Millisecond

// tlsHandshake is the first byte of a TLS connection (RFC 8446 section 5.1).
const tlsHandshake = 0x16

var (
	errTLS      = errors.New("a TLS hello on a plain port")
	errNoMemory = errors.New("no memory to receive into")
)

// conn is one connection. Its goroutine owns all of it but quit.
type conn struct {
	stream *Stream
	nc     net.Conn
	raw    syscall.RawConn // of nc; nil: it has no descriptor to read from
	peer   string
	recent recent
	quit   chan struct{} // closed by finish

	framer   *Framer
	kept     keptStream
	try      func(fd uintptr) bool // c.tryRead
	n        int                   // what that has read,
	err      error                 // or why not
	size     int                   // bytes to ask for in the next read, without a window
	reserved int                   // bytes taken by Reserve
	since    time.Time             // when the held frame began to arrive
	armed    bool                  // a read deadline is set
	cut      bool                  // the stream ends because we end it
}

func newConn(s *Stream, nc net.Conn, peer netip.Addr) *conn {
	c := &conn{
		stream: s,
		nc:     nc,
		quit:   make(chan struct{}),
		framer: NewFramer(s.cfg.Framing, s.cfg.MaxMessage),
		size:   minRead,
	}
	if peer.IsValid() {
		c.peer = peer.String()
	}
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn() // fails never
	}
	c.try = c.tryRead
	return c
}

// finish makes run take what the kernel holds, and end. It is called once, by
// any goroutine.
func (c *conn) finish() {
	close(c.quit)
	c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes Read; fails only on a closed connection
}

// run serves the connection until its peer ends it, a framing error or finish.
func (c *conn) run() {
	defer func() {
		c.kept.close(c.stream, c.framer)
		c.stream.cfg.Release(c.reserved)
		c.nc.Close()
	}()
	for {
		c.arm()
		if stopped(c.quit) { // after arm, which may have undone the deadline of finish
			break
		}
		n, err := c.read()
		c.filled(n)
		switch {
		case n > 0 && !c.take():
			return
		case err == nil:
		case err == errNoMemory:
			c.waitForMemory()
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.flushIdle()
		default: // the end, or a broken connection: what has arrived has arrived
			c.framer.End()
			c.take()
			return
		}
	}
	c.drain()
}

// read waits for the connection and reads from it. Meanwhile it has no window,
// unless a frame is half received.
func (c *conn) read() (int, error) {
	if c.raw == nil {
		space := c.space()
		if space == nil {
			return 0, errNoMemory
		}
		return c.nc.Read(space)
	}
	c.n, c.err = 0, nil
	if err := c.raw.Read(c.try); err != nil {
		return 0, err
	}
	return c.n, c.err
}

// tryRead reads from the descriptor. False: nothing is there yet.
func (c *conn) tryRead(fd uintptr) bool {
	c.n, c.err = c.readNow(int(fd))
	if c.err != unix.EAGAIN {
		return true
	}
	if c.framer.Held() == 0 {
		c.kept.close(c.stream, c.framer)
	}
	return false
}

// readNow reads what is there, and never waits: EAGAIN where that is nothing.
func (c *conn) readNow(fd int) (n int, err error) {
	space := c.space()
	if space == nil {
		return 0, errNoMemory
	}
	if c.kept.window != nil {
		n, err = c.kept.receive(fd, space, c.framer)
	} else {
		n, err = unix.Read(fd, space)
	}
	switch {
	case err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// space is where the next read goes; nil: there is no memory.
func (c *conn) space() []byte {
	if c.kept.window == nil && c.framer.Held() == 0 {
		c.reserve() // nothing, any more
		c.kept.open(c.stream, c.peer, c.framer)
	}
	if c.kept.window != nil {
		return c.kept.space(c.framer)
	}
	if !c.reserve() {
		return nil
	}
	return c.framer.Space(c.size)
}

// filled says that n bytes were read into the space.
func (c *conn) filled(n int) {
	c.resize(n)
	c.framer.Filled(n)
	c.kept.update(c.framer)
}

// resize makes reads larger under load and smaller without.
func (c *conn) resize(n int) {
	if n >= c.size {
		c.size = maxRead
	} else if n < c.size/4 {
		c.size = minRead
	}
}

// take hands out all whole frames that are held. False: the connection cannot
// go on.
func (c *conn) take() bool {
	if first, ok := c.framer.first(); ok && !c.stream.local && first == tlsHandshake {
		return c.refuse(errTLS)
	}
	received := time.Now()
	batch := c.stream.batches.Get().(*[]Message)
	ms := *batch
	for more := true; more; {
		ms, more = c.frames(ms[:0], received)
		c.hand(ms, 0)
	}
	clear(ms[:cap(ms)]) // or it would keep the buffer of this connection alive
	c.stream.batches.Put(batch)
	if c.since.IsZero() {
		c.since = received
	}
	if err := c.framer.Err(); err != nil {
		return c.refuse(err)
	}
	return true
}

// frames appends messages to ms as far as it has room; more says that it is
// full.
func (c *conn) frames(ms []Message, received time.Time) (_ []Message, more bool) {
	for len(ms) < cap(ms) {
		frame, ok := c.framer.Next()
		if !ok {
			return ms, false
		}
		ms = ms[:len(ms)+1]
		c.message(&ms[len(ms)-1], frame, received)
		c.since = time.Time{} // what is held now is another frame
	}
	return ms, true
}

// hand hands out the messages that the framer has just given.
func (c *conn) hand(ms []Message, flags uint32) {
	if len(ms) == 0 {
		return
	}
	c.kept.begin(flags)
	c.stream.cfg.Handler(ms, c.kept.window)
	c.kept.done(c.framer)
}

// message makes a message of a frame, and counts what happened to it.
func (c *conn) message(m *Message, frame Frame, received time.Time) {
	m.scan(frame.Text, c.stream.cfg.Raw, c.stream.local, &c.recent)
	m.Received, m.Peer = received, c.peer
	m.Truncated, m.Partial = frame.Truncated, frame.Partial || c.cut
	if m.Truncated {
		c.stream.truncated.Add(1)
	}
	if m.Partial {
		c.stream.partial.Add(1)
	}
}

// refuse says why the connection is closed; it returns false.
func (c *conn) refuse(err error) bool {
	c.stream.framingErrors.Add(1)
	c.stream.cfg.Log.Warn().Err(err).Str("address", c.stream.address).Str("peer", c.peer).Msg("connection closed")
	return false
}

// arm sets a read deadline where a frame is held and none is set. One that is
// set stays, whatever arrives meanwhile: it is cheaper to find out at its end
// that the frame is a younger one.
func (c *conn) arm() {
	if c.armed || c.stream.cfg.IdleTimeout <= 0 || c.framer.Held() == 0 {
		return
	}
	c.armed = true
	c.nc.SetReadDeadline(c.since.Add(c.stream.cfg.IdleTimeout)) // fails only on a closed connection: so will Read
}

// flushIdle gives out the held frame if it has been half received for the
// idle timeout, counted from its first byte: a peer that sends a byte now and
// then holds memory no longer than one that sends none.
func (c *conn) flushIdle() {
	c.nc.SetReadDeadline(time.Time{})
	c.armed = false
	now, idle := time.Now(), c.stream.cfg.IdleTimeout
	if idle <= 0 || c.framer.Held() == 0 || now.Sub(c.since) < idle {
		return
	}
	c.since = now
	c.kept.update(c.framer) // what Flush is called on
	if frame, ok := c.framer.Flush(); ok {
		var ms [1]Message
		c.message(&ms[0], frame, now)
		c.hand(ms[:], streamFlush)
	}
}

// reserve takes or gives back memory for the frame that is half received, as
// the next read needs it; false where there is none.
func (c *conn) reserve() bool {
	want := 0
	if c.framer.Held() > freeFrame {
		want = c.framer.SpaceSize(c.size)
	}
	if want > c.reserved && !c.stream.cfg.Reserve(want-c.reserved) {
		return false
	}
	if want < c.reserved {
		c.stream.cfg.Release(c.reserved - want)
	}
	c.reserved = want
	return true
}

// waitForMemory waits before the connection asks for memory again: that it is
// not read slows its sender.
func (c *conn) waitForMemory() {
	select {
	case <-time.After(reservePause):
		c.flushIdle()
	case <-c.quit:
	}
}

// drain takes what the kernel holds of the connection. What its peer sends
// meanwhile is no part of it, or a busy one would never end; one read more
// tells whether the peer had ended the stream itself.
func (c *conn) drain() {
	c.nc.SetReadDeadline(time.Time{})
	c.size = maxRead
	ended := false
	for left := heldByKernel(c.nc); !ended && left >= 0; {
		var n int
		var err error
		if cerr := control(c.nc, func(fd int) error {
			n, err = c.readNow(fd)
			return nil
		}); cerr != nil {
			break
		}
		ended = err == io.EOF
		if err != nil && !ended { // EAGAIN, a broken connection, or no memory
			break
		}
		c.filled(n)
		if n > 0 && !c.take() {
			return
		}
		left -= n
	}
	c.framer.End()
	c.cut = !ended
	c.take()
}

// heldByKernel is how many bytes have arrived and were not read (tcp(7), unix(7)).
func heldByKernel(nc net.Conn) (n int) {
	control(nc, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return n
}

// control calls f with a connection's descriptor, which stays open meanwhile.
func control(nc net.Conn, f func(fd int) error) error {
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}
