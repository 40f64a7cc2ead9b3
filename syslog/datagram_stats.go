package syslog

import (
	"errors"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stats may be called by any goroutine, after Close too.
func (d *Datagram) Stats() DatagramStats {
	d.mu.Lock()
	d.countDropsLocked()
	dropped := d.dropped
	d.mu.Unlock()
	return DatagramStats{
		KernelDropped: dropped,
		Truncated:     d.truncated.Load(),
		Refused:       d.refused.Load(),
		Calls:         d.calls.Load(),
	}
}

// Cookie names the socket for as long as it lives, whatever process holds it
// (SO_COOKIE): what a baseline of drops belongs to. 0 once it is closed.
func (d *Datagram) Cookie() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0
	}
	cookie, err := unix.GetsockoptUint64(d.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return 0 // before Linux 4.12
	}
	return cookie
}

// Drops is the kernel's own count of drops, since the socket was made, modulo
// 2^32: what to keep for a later SetBaseline.
func (d *Datagram) Drops() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countDropsLocked()
	return d.counter
}

// SetBaseline says at which of the kernel's counts KernelDropped begins at 0:
// the Drops of the process that had the socket before. Without it, drops
// before ListenDatagram are not counted.
func (d *Datagram) SetBaseline(drops uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counter, d.dropped = drops, 0
	d.countDropsLocked()
}

// countDropsLocked adds what the kernel has dropped since it was last asked.
func (d *Datagram) countDropsLocked() {
	if d.closed {
		return
	}
	now, err := readDrops(d.fd)
	if err != nil {
		return // it worked when the socket was opened
	}
	d.dropped += uint64(now - d.counter) // modulo 2^32, as the counter
	d.counter = now
}

// skMemInfoDrops is SK_MEMINFO_DROPS, an index into what SO_MEMINFO gives
// (linux/sock_diag.h), and skMemInfoVars how many values there are.
const (
	skMemInfoDrops = 8
	skMemInfoVars  = 9
)

// readDrops asks the kernel. Unlike SO_RXQ_OVFL the answer needs no traffic
// and is exact at any moment.
func readDrops(fd int) (uint32, error) {
	var info [skMemInfoVars]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt", errno)
	}
	return info[skMemInfoDrops], nil
}

// Close closes the socket and removes the file of a unix socket that
// ListenDatagram made, if it is still that. Run must have returned, and
// messages that it handed out are gone. A second Close does nothing.
func (d *Datagram) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.countDropsLocked()
	d.closed = true
	file := d.file
	d.mu.Unlock()

	errs := []error{file.remove()}
	if d.fd >= 0 {
		errs = append(errs, os.NewSyscallError("close", unix.Close(d.fd)))
	}
	d.bursts.Lock()
	slots := d.slots
	d.slots = nil
	d.bursts.Unlock()
	switch {
	case slots != nil:
		errs = append(errs, slots.free())
	case d.cfg.Window != nil: // it was not opened
		errs = append(errs, d.cfg.Window.Close())
	}
	return errors.Join(errs...)
}

// maxPeerNames bounds what forged sender addresses can take.
const maxPeerNames = 1024

// peerNames turns addresses into text, each only once as long as there are
// not too many of them.
type peerNames struct {
	lastAddr netip.Addr
	lastName string
	names    map[netip.Addr]string
}

func (p *peerNames) name(addr netip.Addr) string {
	if addr == p.lastAddr {
		return p.lastName
	}
	name, known := p.names[addr]
	if !known {
		if p.names == nil || len(p.names) >= maxPeerNames {
			p.names = make(map[netip.Addr]string)
		}
		name = addr.String()
		p.names[addr] = name
	}
	p.lastAddr, p.lastName = addr, name
	return name
}
