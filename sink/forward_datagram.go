package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDatagrams is how many datagrams one sendmmsg(2) takes at most.
const maxDatagrams = 1024

// fullPoll is how long a wait for room goes on before giveUp is looked at.
const fullPoll = 50 // milliseconds

// datagrams is a connected datagram socket: each record is one datagram.
// The descriptor stays out of the runtime's poller, which every datagram
// that leaves the socket's buffer would wake.
type datagrams struct {
	fd       int
	icmp     bool // refusals come back as ICMP messages
	counters *counters

	headers [maxDatagrams]mmsghdr
	vectors [maxDatagrams]unix.Iovec
	ends    [maxDatagrams]int // where each frame ends in the text
	errors  unix.Msghdr       // to receive an ICMP error with,
	control [256]byte         // its data
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	_ uint32 // the number of bytes sent, which the kernel fills in
}

// openUDP connects a socket to the first address of host:port to which there
// is a route.
func openUDP(ctx context.Context, r *net.Resolver, address string, c *counters) (connection, string, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, "", err
	}
	ips, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, "", err
	}
	var failed error
	for _, ip := range ips {
		to := netip.AddrPortFrom(ip.Unmap(), uint16(port))
		fd, err := connectUDP(to)
		if err == nil {
			return newDatagrams(fd, true, c), to.String(), nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", to, err))
	}
	return nil, "", failed
}

func connectUDP(to netip.AddrPort) (fd int, err error) {
	if to.Addr().Is4() {
		sa := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		return connectSocket(unix.AF_INET, sa, unix.IPPROTO_IP, unix.IP_RECVERR)
	}
	sa := &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if zone := to.Addr().Zone(); zone != "" {
		i, err := net.InterfaceByName(zone)
		if err != nil {
			return -1, err
		}
		sa.ZoneId = uint32(i.Index)
	}
	return connectSocket(unix.AF_INET6, sa, unix.IPPROTO_IPV6, unix.IPV6_RECVERR)
}

// openUnixgram connects a socket to the one at path.
func openUnixgram(path string, c *counters) (connection, string, error) {
	fd, err := connectSocket(unix.AF_UNIX, &unix.SockaddrUnix{Name: path}, 0, 0)
	if err != nil {
		return nil, "", err
	}
	return newDatagrams(fd, false, c), path, nil
}

// connectSocket makes a socket that keeps the errors that come back to it
// (IP_RECVERR of ip(7)), where its family has such an option.
func connectSocket(family int, to unix.Sockaddr, level, recvErr int) (fd int, err error) {
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if recvErr != 0 {
		err = os.NewSyscallError("setsockopt IP_RECVERR", unix.SetsockoptInt(fd, level, recvErr, 1))
	}
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, to))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func newDatagrams(fd int, icmp bool, c *counters) *datagrams {
	d := &datagrams{fd: fd, icmp: icmp, counters: c}
	for i := range d.headers {
		d.headers[i].Iov = &d.vectors[i]
		d.headers[i].SetIovlen(1)
	}
	return d
}

// check has nothing to find: what came back is met by deliver.
func (d *datagrams) check() error { return nil }

// deliver sends record by record, and goes on after a call that took some.
// A record that the socket cannot take is refused.
func (d *datagrams) deliver(text []byte, framing Framing, p *progress, timeout time.Duration, giveUp <-chan struct{}) error {
	deadline := time.Now().Add(timeout)
	for p.done < len(text) {
		if ended(giveUp) {
			return errGivenUp
		}
		n := d.fill(text[p.done:], framing)
		sent, err := d.send(n)
		if refusals, refusal := d.refusals(); refusal != nil {
			d.took(text, framing, p, sent, refusals)
			return refusal
		}
		d.took(text, framing, p, sent, 0)
		switch {
		case err == nil:
		case err == unix.EMSGSIZE:
			p.refused++
			p.done += d.ends[0]
		case err == unix.EAGAIN:
			if err := d.wait(deadline, giveUp); err != nil {
				return err
			}
		default:
			return os.NewSyscallError("sendmmsg", err)
		}
	}
	return nil
}

// fill prepares the next datagrams and returns their number.
func (d *datagrams) fill(text []byte, framing Framing) (n int) {
	for at := 0; at < len(text) && n < maxDatagrams; n++ {
		record, size := framing.cut(text[at:])
		at += size
		d.ends[n] = at
		v := &d.vectors[n]
		v.Base = unsafe.SliceData(record)
		v.SetLen(len(record))
	}
	return n
}

// send makes one call. An error concerns the first datagram; one that the
// call met later is lost (sendmmsg(2)) and shows in the next call, or in
// refusals.
func (d *datagrams) send(n int) (sent int, err error) {
	r, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(d.fd), uintptr(unsafe.Pointer(&d.headers)), uintptr(n), 0, 0, 0)
	// The collector must not find pointers to memory that is unmapped later.
	clear(d.vectors[:n])
	d.counters.writes.Add(1)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// took notes what went out: each refusal stands for a datagram that came
// back, so as many of the last ones have to go out again. On one machine,
// where a refusal comes back within the call, they are just those refused.
func (d *datagrams) took(text []byte, framing Framing, p *progress, sent, refusals int) {
	if sent == 0 {
		return
	}
	again := p.went(text, framing, d.ends[sent-1])
	d.counters.resent.Add(uint64(again))
	if sent -= refusals; sent > 0 {
		p.done += d.ends[sent-1]
	}
}

// refusals takes the ICMP errors off the socket's queue: how many datagrams
// came back, and why the last one did.
func (d *datagrams) refusals() (n int, err error) {
	if !d.icmp {
		return 0, nil
	}
	for {
		d.errors.Control = &d.control[0]
		d.errors.SetControllen(len(d.control))
		_, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(d.fd), uintptr(unsafe.Pointer(&d.errors)), unix.MSG_ERRQUEUE)
		if errno != 0 {
			return n, err // EAGAIN: no more
		}
		if e := extendedError(d.control[:d.errors.Controllen]); e != nil {
			n++
			err = os.NewSyscallError("sendmmsg", e)
		}
	}
}

// extendedError returns the error that came by ICMP, if it did (struct
// sock_extended_err of ip(7)). The kernel queues some that a call reported
// too.
func extendedError(control []byte) error {
	const size = unsafe.Sizeof(unix.SockExtendedErr{})
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return nil
		}
		control = rest
		isError := header.Level == unix.IPPROTO_IP && header.Type == unix.IP_RECVERR ||
			header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_RECVERR
		if !isError || uintptr(len(data)) < size {
			continue
		}
		e := (*unix.SockExtendedErr)(unsafe.Pointer(unsafe.SliceData(data)))
		if e.Origin == unix.SO_EE_ORIGIN_ICMP || e.Origin == unix.SO_EE_ORIGIN_ICMP6 {
			return unix.Errno(e.Errno)
		}
	}
	return nil
}

// wait waits until the socket, and over a unix socket the receiver's queue,
// has room.
func (d *datagrams) wait(deadline time.Time, giveUp <-chan struct{}) error {
	for !ended(giveUp) {
		if !time.Now().Before(deadline) {
			return fmt.Errorf("the receiver's queue is full: %w", os.ErrDeadlineExceeded)
		}
		fds := [1]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(fds[:], fullPoll); n > 0 {
			return nil
		} else if err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
	return errGivenUp
}

// finish has no peer to wait for.
func (d *datagrams) finish(<-chan struct{}) error {
	d.close()
	return nil
}

func (d *datagrams) close() { _ = unix.Close(d.fd) }
