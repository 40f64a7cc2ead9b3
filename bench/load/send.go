package load

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sendBuffer = 4 << 20 // asked for; a unix socket's sender can have no more on their way
	sendTick   = time.Millisecond
)

// SendBatch is how many datagrams a system call can send.
const SendBatch = 64

// Sent is what became of a load.
type Sent struct {
	Messages int           // offered
	Refused  int           // of them, by the kernel: a queue was full
	Took     time.Duration // from the first to the last
}

// Part is a choice of the messages of a set: so many, the first and every
// step-th after it.
type Part struct{ First, Step, Messages int }

// Share is the k-th of n equal parts of p, for n senders that take turns. What
// cannot be divided is left out.
func (p Part) Share(k, n int) Part {
	return Part{p.First + k*p.Step, n * p.Step, p.Messages / n}
}

// Send offers a part of a set from a socket of its own, at a rate (messages a
// second), to a datagram address, "udp" or "unixgram", up to batch of them a
// system call. It keeps to the clock whatever becomes of them, as nginx does:
// what is refused is not offered again.
func Send(ctx context.Context, network, address string, set *Set, part Part, rate, batch int) (Sent, error) {
	fd, err := dial(network, address)
	if err != nil {
		return Sent{}, err
	}
	defer unix.Close(fd)
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	vector := NewVector(SendBatch, 2048)
	var sent Sent
	start := time.Now()
	for sent.Messages < part.Messages {
		due := min(part.Messages, int(time.Since(start).Seconds()*float64(rate)))
		if due <= sent.Messages {
			if err := ctx.Err(); err != nil {
				return sent, err
			}
			time.Sleep(sendTick)
			continue
		}
		n := min(due-sent.Messages, SendBatch)
		for i := range n {
			vector.Set(i, len(set.Append(vector.Slot(i), part.First+(sent.Messages+i)*part.Step)))
		}
		refused, err := sendAll(vector, fd, n, batch)
		if err != nil {
			return sent, fmt.Errorf("send to %s: %w", address, err)
		}
		sent.Messages += n
		sent.Refused += refused
	}
	sent.Took = time.Since(start)
	return sent, nil
}

// dial is a socket connected to address, non-blocking, and unknown to Go's
// network poller, which would be woken by every datagram. The caller closes it.
func dial(network, address string) (int, error) {
	family, to, err := resolve(network, address)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("connect to %s: %w", address, err)
	}
	return fd, nil
}

// Listen is a non-blocking socket bound to address, with a receive buffer of
// so many bytes if the system grants it. The caller closes it.
func Listen(network, address string, buffer int) (int, error) {
	family, at, err := resolve(network, address)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, at); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("bind to %s: %w", address, err)
	}
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, buffer)
	return fd, nil
}

// resolve is a socket's family and address for network "udp" (127.0.0.1:PORT)
// or "unixgram" (a path).
func resolve(network, address string) (family int, _ unix.Sockaddr, err error) {
	if network == "unixgram" {
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: address}, nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Is4() {
		return 0, nil, fmt.Errorf("address %q is not an IPv4 address and a port", address)
	}
	return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, nil
}

// setBuffer sets a socket's buffer beyond the system's limit where that is
// allowed (root), else up to it.
func setBuffer(fd, force, limited, bytes int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, limited, bytes)
	}
}

// sendAll offers the first n datagrams of a vector once each.
func sendAll(v *Vector, fd, n, batch int) (refused int, _ error) {
	for i := 0; i < n; {
		took, err := v.Send(fd, i, min(i+batch, n))
		switch err {
		case nil:
			i += took
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ECONNREFUSED:
			i++
			refused++
		default:
			return refused, err
		}
	}
	return refused, nil
}
