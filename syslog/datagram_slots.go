package syslog

import (
	"fmt"
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

// Window is memory to receive into that outlives the process, and says
// whether what it holds is done.
type Window interface {
	Memory() []byte // zeroed at first; whole pages
	Begin()         // from now on what it holds is to be taken up after a kill
	End()           // all of it is done
	Close() error   // it is not used any more
}

// slots is the memory that recvmmsg(2) fills. A datagram lands in a small
// dense slot; what does not fit there goes on in a large one, of which nothing
// is touched, so that it takes no memory, until then. It is mapped, never
// moved by anyone, and belongs to the goroutine that receives.
//
// In a window the memory describes itself, and the lengths are zero but for
// datagrams that have been received: so it is known, after a kill, which those
// are.
type slots struct {
	window Window // nil: the memory is ours
	memory []byte

	headers []mmsghdr
	iovecs  [][2]unix.Iovec
	names   []unix.RawSockaddrInet6 // an IPv4 address is shorter; nil: a unix socket
	dense   []byte                  // denseSize for each
	large   []byte                  // largeSize for each; nil if no datagram is that long

	slotsLayout
	filled  int  // slots whose lengths are not zero
	touched bool // a large slot was used since giveBack
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	n uint32 // bytes received
}

// slotsLayout is what the memory begins with.
type slotsLayout struct {
	magic     uint32
	count     uint32 // slots
	largeSize uint32 // bytes, whole pages; 0: none
	named     uint32 // 1: names are there
	size      uint32 // bytes of a datagram, framing included
}

const (
	slotsMagic = 0x736c6f74
	slotsPage  = 4096
)

// layOut tells how slots for datagrams of up to size bytes are laid out.
func layOut(count, size int, named bool) slotsLayout {
	l := slotsLayout{magic: slotsMagic, count: uint32(count), size: uint32(size)}
	if size > denseSize {
		l.largeSize = uint32(wholePages(size))
	}
	if named {
		l.named = 1
	}
	return l
}

func wholePages(n int) int { return (n + slotsPage - 1) / slotsPage * slotsPage }

// head is the size of all that lies before the dense part, in bytes.
func (l *slotsLayout) head() int {
	each := int(unsafe.Sizeof(mmsghdr{}) + unsafe.Sizeof([2]unix.Iovec{}) + unsafe.Sizeof(unix.RawSockaddrInet6{}))
	return wholePages(slotsStart + int(l.count)*each)
}

// slotsStart is where the headers begin: they hold pointers.
const slotsStart = 64

func (l *slotsLayout) total() int {
	return l.head() + int(l.count)*denseSize + int(l.count)*int(l.largeSize)
}

// ReceiveMemory is how much memory the receiving of messages of up to
// maxMessage bytes wants, and at most the budget, in bytes; 0 if that is too
// little.
func ReceiveMemory(maxMessage, budget int) int {
	for count := slotCount; count > 0; count-- {
		l := layOut(count, maxMessage+framingSize, true)
		if n := l.total(); n <= budget {
			return n
		}
	}
	return 0
}

// newSlots makes slots for datagrams of up to size bytes: as many as the
// window has room for, or, without one, slotCount in memory that is mapped.
// named: the sender's address is wanted.
func newSlots(size int, named bool, window Window) (*slots, error) {
	s := &slots{window: window, slotsLayout: layOut(slotCount, size, named)}
	if window == nil {
		var err error
		if s.memory, err = mapMemory(s.total()); err != nil {
			return nil, err
		}
	} else {
		s.memory = window.Memory()
		for s.total() > len(s.memory) {
			s.count--
		}
		if s.count == 0 {
			return nil, fmt.Errorf("%d bytes are too little to receive %d into", len(s.memory), size)
		}
	}
	s.find()
	for i := range s.headers {
		s.link(i, size)
	}
	*(*slotsLayout)(unsafe.Pointer(&s.memory[0])) = s.slotsLayout
	return s, nil
}

// find finds the parts of the memory.
func (s *slots) find() {
	n := int(s.count)
	at := unsafe.Pointer(&s.memory[slotsStart])
	s.headers = unsafe.Slice((*mmsghdr)(at), n)
	at = unsafe.Add(at, n*int(unsafe.Sizeof(mmsghdr{})))
	s.iovecs = unsafe.Slice((*[2]unix.Iovec)(at), n)
	at = unsafe.Add(at, n*int(unsafe.Sizeof([2]unix.Iovec{})))
	if s.named == 1 {
		s.names = unsafe.Slice((*unix.RawSockaddrInet6)(at), n)
	}
	s.dense = s.memory[s.head():][:n*denseSize]
	if s.largeSize > 0 {
		s.large = s.memory[s.head()+n*denseSize:][:n*int(s.largeSize)]
	}
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
		iov[1].Base = &s.large[i*int(s.largeSize)+denseSize]
		iov[1].SetLen(size - denseSize)
		h.SetIovlen(2)
	}
}

// askNames has the senders' addresses put into names from now on.
func (s *slots) askNames() {
	for i := range s.names {
		h := &s.headers[i]
		h.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		h.Namelen = unix.SizeofSockaddrInet6
	}
}

// receive takes what the socket has queued, as many datagrams as there are
// slots at most, and never waits. So it may be a raw call: telling the
// scheduler costs more than the kernel's copying.
func (s *slots) receive(fd int) (int, error) {
	if s.window != nil {
		s.window.Begin()
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&s.headers[0])), uintptr(s.count), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	s.filled = int(n)
	return int(n), nil
}

// done says that all that was received is with its takers.
func (s *slots) done() {
	if s.window != nil {
		s.window.End()
	}
	for i := range s.filled {
		s.headers[i].n = 0
	}
	s.filled = 0
}

// skip says that a slot's datagram is no message.
func (s *slots) skip(i int) { s.headers[i].n = 0 }

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
	b = s.large[i*int(s.largeSize):][:n:n]
	copy(b, dense)
	return b, cut
}

// sender is the address that a slot's datagram came from; the zero value if it
// was not asked for.
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
	if s.touched && s.window == nil {
		s.touched = false
		unix.Madvise(s.large, unix.MADV_DONTNEED)
	}
}

// free gives the memory up; nothing that pointed into it may be used any more.
func (s *slots) free() error {
	memory, window := s.memory, s.window
	*s = slots{}
	if window != nil {
		return window.Close()
	}
	return os.NewSyscallError("munmap", unix.Munmap(memory))
}
