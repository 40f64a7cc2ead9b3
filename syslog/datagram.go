package syslog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"logboom/drain"
)

// What the kernel charges a queue for a datagram ("truesize"), in bytes: this
// for a short one, about twice the length for others.
const shortTruesize = 1280

// minTruesize is less than any datagram is charged on any kernel.
const minTruesize = 512

// unixSendBuffer is net.core.wmem_default: what one sender may have in flight
// on a unix datagram socket, in bytes of truesize, however deep the queue is.
const unixSendBuffer = 212992

// shortQueue is a queue, in datagrams, in which nothing can be let gather.
const shortQueue = 64

// Targets of moderated draining: datagrams per wake-up, the longest sleeps,
// and how many datagrams a second may come out of the blue over UDP (what one
// sender reaches on a loopback).
const (
	drainTarget  = 512
	udpInterval  = 20 * time.Millisecond
	unixInterval = 2 * time.Millisecond
	udpBurst     = 300_000
)

// drainLimit is how many datagrams one drain takes before it lets the loop
// look at stop; the queue may never be found empty while senders are faster.
const drainLimit = 16 * slotCount

// retryInterval is when a drain that failed for want of memory is tried again.
const retryInterval = 100 * time.Millisecond

// DatagramConfig says where datagrams are received and who takes them.
type DatagramConfig struct {
	Network string // "udp", "udp4", "udp6" or "unixgram"
	Address string // host:port, or the path of the socket
	FD      int    // a bound socket to duplicate and use instead of binding; -1: none

	Raw           bool // the whole datagram is the message, without parsing
	MaxMessage    int  // bytes of a datagram, without the framing at its end
	ReceiveBuffer int  // udp: bytes to ask the system for; 0 leaves its default

	DrainInterval time.Duration // longest sleep between drains; 0 wakes for each datagram, < 0 chooses
	Poller        *drain.Poller
	Window        Window // memory to receive into, which it closes; nil: its own

	Mode     os.FileMode // of a unix socket that is made, whatever the umask
	UID, GID int         // its owner; -1 leaves it

	Allow     []netip.Prefix // senders; nil: all
	ReusePort bool           // udp: several sockets may share the address

	// Handler takes the messages of one recvmmsg(2), in order, and the Window
	// that they lie in. They are borrowed for the call. While it blocks nothing
	// is received.
	Handler func(ms []Message, w Window)
}

// DatagramStats are counts since the socket was opened.
type DatagramStats struct {
	KernelDropped uint64 // never received: the kernel's queue was full
	Truncated     uint64 // cut at MaxMessage
	Refused       uint64 // from senders that are not allowed
	Calls         uint64 // of recvmmsg(2)
}

// Datagram receives messages from a datagram socket.
type Datagram struct {
	cfg      DatagramConfig
	fd       int
	address  string
	local    bool          // a unix socket
	queue    int           // of a unix socket, in datagrams
	granted  int           // receive buffer in bytes, as the kernel reports it
	interval time.Duration // longest sleep between drains

	bursts sync.Mutex // held during a burst, while the handler blocks too; guards slots
	slots  *slots     // nil once it is closed
	named  bool       // they receive the senders' addresses too; guarded by bursts
	asked  atomic.Bool

	// Owned by Run.
	messages []Message
	size     int // bytes of a datagram, of late
	peers    peerNames
	recent   recent

	truncated, refused, calls atomic.Uint64

	mu      sync.Mutex // guards the fields below, and fd against Close
	file    *socketFile
	closed  bool
	counter uint32 // the kernel's count of drops when it was last read; it wraps
	dropped uint64 // the sum of its steps since the baseline
}

// ListenDatagram binds, or adopts, a socket. Errors name the address.
func ListenDatagram(cfg DatagramConfig) (*Datagram, error) {
	d := &Datagram{cfg: cfg, fd: -1, local: cfg.Network == "unixgram"}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("listen %s://%s: %w", cfg.Network, cfg.Address, errors.Join(err, d.Close()))
	}
	return d, nil
}

func (d *Datagram) open() (err error) {
	switch {
	case d.cfg.Handler == nil || d.cfg.Poller == nil:
		return errors.New("a handler and a poller are needed")
	case d.cfg.MaxMessage <= 0:
		return fmt.Errorf("max message of %d bytes", d.cfg.MaxMessage)
	case !d.local && !strings.HasPrefix(d.cfg.Network, "udp"):
		return errors.New("not a datagram network")
	}
	switch {
	case d.cfg.FD >= 0:
		d.fd, err = adoptSocket(d.cfg.FD, unix.SOCK_DGRAM, d.local)
	case d.local:
		d.fd, d.file, err = bindUnix(d.cfg.Address, unix.SOCK_DGRAM, d.cfg.Mode, d.cfg.UID, d.cfg.GID)
	default:
		d.fd, err = bindUDP(d.cfg.Network, d.cfg.Address, d.cfg.ReusePort)
	}
	if err != nil {
		return err
	}
	if d.address, err = socketAddress(d.fd); err != nil {
		return err
	}
	if err := d.dimension(); err != nil {
		return err
	}
	// Drops of an adopted socket that are older than this belong to whoever
	// had it before, until SetBaseline says otherwise.
	if d.counter, err = readDrops(d.fd); err != nil {
		return err
	}
	d.messages = make([]Message, slotCount)
	if d.slots, err = d.newSlots(d.cfg.Window); err != nil {
		return err
	}
	if len(d.cfg.Allow) > 0 {
		d.AskPeers()
	}
	return nil
}

func (d *Datagram) newSlots(w Window) (*slots, error) {
	return newSlots(d.cfg.MaxMessage+framingSize, !d.local, w)
}

// AskPeers has a UDP socket's messages know their Peer from the next burst on.
// To tell it takes the kernel a twentieth of all that a message costs, so it is
// asked only where somebody wants to know. A burst that is under way is not
// waited for: its handler may wait for what the caller is about to do.
func (d *Datagram) AskPeers() { d.asked.Store(!d.local) }

// Move receives into another window, or, if that is nil, memory of its own. It
// waits for the burst that is under way, and has closed the window before when
// it returns; or the other, on an error or after Close.
func (d *Datagram) Move(w Window) error {
	other, err := d.newSlots(w)
	if err != nil && w != nil {
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return err
	}
	d.bursts.Lock()
	if d.slots != nil {
		d.slots, other = other, d.slots
		d.named = false
	}
	d.bursts.Unlock()
	return other.free()
}

// bindUDP makes a UDP socket that is not in Go's network poller.
func bindUDP(network, address string, reusePort bool) (fd int, err error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if reusePort {
			c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		}
		return os.NewSyscallError("setsockopt", err)
	}}
	conn, err := config.ListenPacket(context.Background(), network, address)
	if err != nil {
		return -1, err
	}
	defer conn.Close() // takes its own descriptor out of the poller; the socket lives on in ours
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	if cerr := raw.Control(func(s uintptr) { fd, err = adoptSocket(int(s), unix.SOCK_DGRAM, false) }); cerr != nil {
		return -1, cerr
	}
	return fd, err
}

// dimension sets and reads how much the kernel queues, and from that how long
// the loop may sleep.
func (d *Datagram) dimension() (err error) {
	if d.local {
		d.queue = DgramQueueLength()
	} else if err := d.askForBuffer(); err != nil {
		return err
	}
	d.granted, err = unix.GetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	switch d.interval = d.cfg.DrainInterval; {
	case d.interval >= 0:
	case d.room() < shortQueue:
		d.interval = 0
	case d.local:
		d.interval = unixInterval
	default:
		d.interval = udpInterval
	}
	return nil
}

// askForBuffer sets the receive buffer. One that came with an adopted socket
// may be larger than this process could ask for, and is never made smaller.
func (d *Datagram) askForBuffer() error {
	n := d.cfg.ReceiveBuffer
	if n <= 0 {
		return nil
	}
	if d.cfg.FD >= 0 {
		granted, err := unix.GetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if err == nil && granted >= 2*n {
			return nil
		}
	}
	// The first is not bound by rmem_max but needs CAP_NET_ADMIN.
	if unix.SetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) == nil {
		return nil
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n))
}

// room is what the kernel queues in all, in datagrams of the size of late.
func (d *Datagram) room() int {
	truesize := max(shortTruesize, 2*d.size)
	if d.local {
		return min(d.queue, unixSendBuffer/truesize)
	}
	return d.granted / truesize
}

// Run receives until stop is closed, then takes what the kernel's queue holds
// at that moment, and returns nil; or it returns the error that made it end.
// It runs once.
func (d *Datagram) Run(stop <-chan struct{}) error {
	loop := drain.Loop{
		FD:          d.fd,
		Poller:      d.cfg.Poller,
		Room:        d.room,
		Target:      drainTarget,
		MaxInterval: d.interval,
		Drain:       d.drain,
	}
	if !d.local {
		loop.Burst = udpBurst
	}
	err := loop.Run(stop)
	if err == nil {
		err = d.drainQueue()
	}
	if err != nil {
		return fmt.Errorf("receive on %s://%s: %w", d.cfg.Network, d.address, err)
	}
	return nil
}

// drain is the loop's: it empties the queue, a burst at a time.
func (d *Datagram) drain() (units int, again time.Duration, err error) {
	for units < drainLimit {
		n, more, err := d.burst(units == 0)
		units += n
		if err != nil {
			again, err := transient(err)
			return units, again, err
		}
		if !more {
			return units, 0, nil
		}
	}
	return units, -1, nil
}

// drainQueue takes what is queued now. What senders add meanwhile is no part
// of it, or it might never end: it takes no more than the queue can hold.
func (d *Datagram) drainQueue() error {
	left := d.granted / minTruesize
	if d.local {
		left = max(d.queue, 1) + 1 // the kernel's limit is inclusive
	}
	for left > 0 {
		n, more, err := d.burst(false)
		if err != nil {
			again, err := transient(err)
			if again >= 0 {
				return err
			}
		} else if !more {
			return nil
		}
		left -= max(n, 1)
	}
	return nil
}

// transient sorts the errors of recvmmsg(2). A socket reports once what ICMP
// said of an earlier send of its own: the next call goes on. Want of memory
// passes. The rest ends the source.
func transient(err error) (again time.Duration, _ error) {
	switch err {
	case unix.EINTR, unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN:
		return -1, nil
	case unix.ENOMEM, unix.ENOBUFS:
		return retryInterval, nil
	}
	return 0, os.NewSyscallError("recvmmsg", err)
}

// burst is one recvmmsg(2): how many datagrams it took, and whether there may
// be more at once. None is no error, but, if it is the first, a pause.
func (d *Datagram) burst(first bool) (n int, more bool, err error) {
	d.bursts.Lock()
	defer d.bursts.Unlock()
	if !d.named && d.asked.Load() {
		d.named = true
		d.slots.askNames()
	}
	n, err = d.slots.receive(d.fd)
	d.calls.Add(1)
	if err == unix.EAGAIN {
		n, err = 0, nil
	}
	switch {
	case n > 0:
		d.hand(n)
		d.slots.done()
	case first:
		d.slots.giveBack()
	}
	return n, n == int(d.slots.count), err
}

// hand gives the datagrams of n slots to the handler.
func (d *Datagram) hand(n int) {
	received := time.Now()
	ms, bytes := d.messages[:0], 0
	for i := range n {
		b, cut := d.slots.datagram(i)
		bytes += len(b)
		peer, ok := d.peer(i)
		if !ok {
			d.refused.Add(1)
			d.slots.skip(i)
			continue
		}
		ms = ms[:len(ms)+1]
		m := &ms[len(ms)-1]
		if !m.take(b, cut, d.cfg.Raw, d.local, d.cfg.MaxMessage, &d.recent) {
			ms = ms[:len(ms)-1]
			d.slots.skip(i)
			continue
		}
		m.Received, m.Peer, m.Partial = received, peer, false
		if m.Truncated {
			d.truncated.Add(1)
		}
	}
	d.size = (d.size + bytes/n) / 2
	if len(ms) > 0 {
		d.cfg.Handler(ms, d.slots.window)
	}
}

// take makes m the message of a datagram, of which maxMessage bytes are taken.
// It returns false where there is none.
func (m *Message) take(b []byte, cut, raw, local bool, maxMessage int, r *recent) bool {
	if !raw && !cut {
		b = TrimDatagram(b)
	}
	if len(b) == 0 {
		return false
	}
	if cut = cut || len(b) > maxMessage; cut {
		b = wholeRunes(b[:min(len(b), maxMessage)])
	}
	m.scan(b, raw, local, r)
	m.Truncated = cut
	return true
}

// peer is the sender of a slot's datagram in text, if it was asked for, and
// whether it may send.
func (d *Datagram) peer(i int) (string, bool) {
	if !d.named {
		return "", true
	}
	addr := d.slots.sender(i)
	if !allowed(d.cfg.Allow, addr) {
		return "", false
	}
	return d.peers.name(addr), true
}

// FD is the socket, for whoever adopts it. It is the Datagram's until Close.
func (d *Datagram) FD() int { return d.fd }

// Addr is the address bound: host:port, or the path.
func (d *Datagram) Addr() string { return d.address }

// ReceiveBuffer is what the system granted, in bytes as the kernel counts:
// twice of what was asked for, to make up for its own overhead (socket(7)).
func (d *Datagram) ReceiveBuffer() int { return d.granted }

// DrainInterval is the longest sleep between two drains; 0: none.
func (d *Datagram) DrainInterval() time.Duration { return d.interval }
