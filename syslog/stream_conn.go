package syslog

import (
	"errors"
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

var errTLS = errors.New("a TLS hello on a plain port")

// conn is one connection. Its goroutine owns all of it but quit.
type conn struct {
	stream *Stream
	nc     net.Conn
	peer   string
	quit   chan struct{} // closed by finish

	framer   *Framer
	begun    bool      // the first byte was looked at
	size     int       // bytes to ask for in the next read
	reserved int       // bytes taken by Reserve
	since    time.Time // when the held frame began to arrive
	armed    bool      // a read deadline is set
	cut      bool      // the stream ends because we end it
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
		c.stream.cfg.Release(c.reserved)
		c.nc.Close()
	}()
	for c.reserveOrWait() {
		c.arm()
		if stopped(c.quit) { // after arm, which may have undone the deadline of finish
			break
		}
		n, err := c.nc.Read(c.framer.Space(c.size))
		c.resize(n)
		c.framer.Filled(n)
		switch {
		case n > 0 && !c.take():
			return
		case err == nil:
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
	if !c.begun && c.framer.Held() > 0 {
		c.begun = true
		if !c.stream.local && c.framer.First() == tlsHandshake {
			return c.refuse(errTLS)
		}
	}
	received := time.Now()
	batch := c.stream.batches.Get().(*[]Message)
	ms := *batch
	for frame, ok := c.framer.Next(); ok; frame, ok = c.framer.Next() {
		if len(ms) == cap(ms) {
			c.stream.cfg.Handler(ms)
			ms = ms[:0]
		}
		ms = ms[:len(ms)+1]
		c.message(&ms[len(ms)-1], frame, received)
		c.since = time.Time{} // what is held now is another frame
	}
	if len(ms) > 0 {
		c.stream.cfg.Handler(ms)
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

// message makes a message of a frame, and counts what happened to it.
func (c *conn) message(m *Message, frame Frame, received time.Time) {
	m.scan(frame.Text, c.stream.cfg.Raw, c.stream.local)
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
	if frame, ok := c.framer.Flush(); ok {
		var ms [1]Message
		c.message(&ms[0], frame, now)
		c.stream.cfg.Handler(ms[:])
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

// reserveOrWait waits until there is memory to read on: that the connection is
// not read slows its sender. False after finish.
func (c *conn) reserveOrWait() bool {
	for !c.reserve() {
		select {
		case <-time.After(reservePause):
			c.flushIdle()
		case <-c.quit:
			return false
		}
	}
	return true
}

// drain takes what the kernel holds of the connection. What its peer sends
// meanwhile is no part of it, or a busy one would never end; one read more
// tells whether the peer had ended the stream itself.
func (c *conn) drain() {
	c.nc.SetReadDeadline(time.Time{})
	ended := false
	for left := heldByKernel(c.nc); !ended && left >= 0 && c.reserve(); {
		n, err := readNow(c.nc, c.framer.Space(maxRead))
		if err != nil { // EAGAIN, or a broken connection
			break
		}
		c.framer.Filled(n)
		if n > 0 && !c.take() {
			return
		}
		left -= n
		ended = n == 0
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

// readNow is a read that never waits: EAGAIN where nothing is there.
func readNow(nc net.Conn, b []byte) (n int, err error) {
	err = control(nc, func(fd int) (err error) {
		n, err = unix.Read(fd, b)
		return err
	})
	return max(n, 0), err
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
