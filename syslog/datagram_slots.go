package syslog

import (
	"errors"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slotCount is how many datagrams one recvmmsg(2) takes at most.
const slotCount = 256

// denseSize is how much of a datagram its slot holds in the dense part, in
// bytes: nearly every log line, so that a burst of them stays in the cache.
const denseSize = 2048

// framingSize is the longest framing at the end of a datagram, NUL CR LF: a
// message of exactly the limit may have it.
const framingSize = 3

// slots is the memory that recvmmsg(2) fills. A datagram lands in a small
// dense slot; what does not fit there goes on in a large one, of which nothing
// is touched, so that it takes no memory, until then. Both are mapped, never
// moved by anyone, and belong to the goroutine that receives.
type slots struct {
	headers []mmsghdr
	iovecs  [][2]unix.Iovec
	names   []unix.RawSockaddrInet6 // an IPv4 address is shorter

	dense     []byte // slotCount times denseSize
	large     []byte // slotCount times largeSize; nil if no datagram is that long
	largeSize int    // bytes, whole pages
	touched   bool   // a large slot was used since giveBack
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	n uint32 // bytes received
}

// newSlots maps slots for datagrams of up to size bytes. named: the sender's
// address is wanted.
func newSlots(size int, named bool) (*slots, error) {
	s := &slots{
		headers: make([]mmsghdr, slotCount),
		iovecs:  make([][2]unix.Iovec, slotCount),
	}
	var err error
	if s.dense, err = mapMemory(slotCount * denseSize); err != nil {
		return nil, err
	}
	if size > denseSize {
		page := os.Getpagesize()
		s.largeSize = (size + page - 1) / page * page
		if s.large, err = mapMemory(slotCount * s.largeSize); err != nil {
			return nil, errors.Join(err, s.free())
		}
	}
	if named {
		s.names = make([]unix.RawSockaddrInet6, slotCount)
	}
	for i := range s.headers {
		s.link(i, size)
	}
	return s, nil
}

func mapMemory(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	return b, os.NewSyscallError("mmap", err)
}

// link points a header at its slot. The large slot has room in front for the
// dense part, so that joining the two copies only that.
func (s *slots) link(i, size int) {
	h, iov := &s.headers[i], &s.iovecs[i]
	h.Iov = &iov[0]
	iov[0].Base = &s.dense[i*denseSize]
	iov[0].SetLen(min(size, denseSize))
	h.SetIovlen(1)
	if s.large != nil {
		iov[1].Base = &s.large[i*s.largeSize+denseSize]
		iov[1].SetLen(size - denseSize)
		h.SetIovlen(2)
	}
	if s.names != nil {
		h.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		h.Namelen = unix.SizeofSockaddrInet6
	}
}

// receive takes what the socket has queued, up to slotCount datagrams, and
// never waits. So it may be a raw call: telling the scheduler costs more than
// the kernel's copying.
func (s *slots) receive(fd int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&s.headers[0])), slotCount, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// datagram is what the last receive put into a slot, until the next receive.
// cut: it was longer than the slot.
func (s *slots) datagram(i int) (b []byte, cut bool) {
	h := &s.headers[i]
	n := int(h.n)
	cut = h.Flags&unix.MSG_TRUNC != 0
	dense := s.dense[i*denseSize:][:denseSize]
	if n <= denseSize {
		return dense[:n:n], cut
	}
	s.touched = true
	b = s.large[i*s.largeSize:][:n:n]
	copy(b, dense)
	return b, cut
}

// sender is the address that a slot's datagram came from.
func (s *slots) sender(i int) netip.Addr {
	s.headers[i].Namelen = unix.SizeofSockaddrInet6 // the kernel wrote the length it used
	name := &s.names[i]
	switch name.Family {
	case unix.AF_INET:
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	case unix.AF_INET6:
		return netip.AddrFrom16(name.Addr).Unmap()
	}
	return netip.Addr{}
}

// giveBack returns the memory of large slots to the system, if any was used.
func (s *slots) giveBack() {
	if s.touched {
		s.touched = false
		unix.Madvise(s.large, unix.MADV_DONTNEED) // fails on locked memory: then it is meant to stay
	}
}

// free unmaps the slots; nothing that pointed into them may be used any more.
func (s *slots) free() error {
	var errs [2]error
	for i, b := range [][]byte{s.dense, s.large} {
		if b != nil {
			errs[i] = os.NewSyscallError("munmap", unix.Munmap(b))
		}
	}
	s.dense, s.large = nil, nil
	return errors.Join(errs[:]...)
}
