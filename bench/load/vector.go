package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Vector holds datagrams that one system call sends or receives.
type Vector struct {
	slots   []byte
	size    int // bytes of a slot
	pieces  []unix.Iovec
	headers []mmsghdr
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	header unix.Msghdr
	length uint32 // as received
	_      [4]byte
}

// NewVector makes room for count datagrams of up to size bytes.
func NewVector(count, size int) *Vector {
	v := &Vector{
		slots:   make([]byte, count*size),
		size:    size,
		pieces:  make([]unix.Iovec, count),
		headers: make([]mmsghdr, count),
	}
	for i := range v.headers {
		v.pieces[i].Base = &v.slots[i*size]
		v.pieces[i].SetLen(size)
		v.headers[i].header.Iov = &v.pieces[i]
		v.headers[i].header.SetIovlen(1)
	}
	return v
}

// Slot is the room of datagram i, to be appended to; Set says how long it
// became.
func (v *Vector) Slot(i int) []byte { return v.slots[i*v.size : i*v.size : (i+1)*v.size] }

// Set fixes the length of datagram i for Send.
func (v *Vector) Set(i, length int) { v.pieces[i].SetLen(length) }

// Send sends datagrams from up to before to from a connected, non-blocking
// socket, and returns how many of them it took.
func (v *Vector) Send(fd, from, to int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&v.headers[from])), uintptr(to-from), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Receive takes what a socket's queue holds, without waiting, and returns the
// number of datagrams; none if it holds none.
func (v *Vector) Receive(fd int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&v.headers[0])), uintptr(len(v.headers)), unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EAGAIN, unix.EINTR:
		return 0, nil
	}
	return 0, errno
}

// Datagram is datagram i as received, valid until the next Receive.
func (v *Vector) Datagram(i int) []byte {
	return v.slots[i*v.size:][:v.headers[i].length]
}
