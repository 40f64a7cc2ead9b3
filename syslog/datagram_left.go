package syslog

import (
	"errors"
	"time"
	"unsafe"
)

// LeftDatagrams returns the messages that a [Window] of a process that was
// killed holds, in the order in which they were received. They point into the
// memory. raw: the whole datagram is the message. Whatever the memory holds,
// nothing outside it is touched.
func LeftDatagrams(memory []byte, raw bool, received time.Time) ([]Message, error) {
	s := &slots{memory: memory}
	if len(memory) < slotsPage {
		return nil, errNoSlots
	}
	s.slotsLayout = *(*slotsLayout)(unsafe.Pointer(&memory[0]))
	if s.magic != slotsMagic || s.count == 0 || s.count > slotCount || s.named > 1 ||
		s.size < framingSize || s.largeSize > 1<<30 || s.largeSize%slotsPage != 0 || s.total() > len(memory) {
		return nil, errNoSlots
	}
	s.find()
	local := s.names == nil
	var ms []Message
	var peers peerNames
	var recent recent
	for i := range s.headers {
		n := s.headers[i].n
		if n == 0 || n > max(denseSize, s.largeSize) {
			continue // nothing was received there, or it was damaged
		}
		b, cut := s.datagram(i)
		var m Message
		if !m.take(b, cut, raw, local, int(s.size)-framingSize, &recent) {
			continue
		}
		m.Received = received
		if !local {
			if addr := s.sender(i); addr.IsValid() {
				m.Peer = peers.name(addr)
			}
		}
		ms = append(ms, m)
	}
	return ms, nil
}

var errNoSlots = errors.New("no memory that datagrams were received into")
