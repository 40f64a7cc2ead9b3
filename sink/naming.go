package sink

import (
	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/syslog"
)

// naming finds the key of a message's batch: for a file, its rendered path.
// It is guarded by the lock of the sink's buffer.
type naming struct {
	path   *Path // nil: all messages have the key ""
	sink   string
	log    zerolog.Logger
	second int64 // the key below holds for messages received in this second
	cached []byte

	// What variables make of names that senders choose is limited: maxNew of
	// them a minute; what is over goes to the overflow path. Names are
	// remembered in two generations, so that those in use stay known.
	maxNew     int
	minute     int64
	fresh      int
	known      map[uint64]struct{}
	previous   map[uint64]struct{}
	scratch    []byte
	overflow   string
	overflowed uint64 // messages
}

// maxKnown bounds a generation of names.
const maxKnown = 1 << 16

func newNaming(path *Path, maxNew int, sink string, log zerolog.Logger) naming {
	n := naming{path: path, sink: sink, log: log, maxNew: maxNew, second: -1}
	if path != nil {
		n.overflow = path.overflow()
		n.known = make(map[uint64]struct{})
	}
	return n
}

// fixed reports whether the key does not depend on the message.
func (n *naming) fixed() bool { return n.path == nil || !n.path.variables }

// perBurst reports whether all messages of one moment and origin have one key.
func (n *naming) perBurst() bool {
	return n.fixed() || !n.path.usesMessage()
}

// key appends the key of m to dst.
func (n *naming) key(dst []byte, m *syslog.Message, o *Origin, b *buffer.Buffer) []byte {
	if n.path == nil {
		return dst
	}
	if n.path.variables {
		dst = n.path.append(dst, m, o, n.sink, m.Received)
		if b.IsOpen(dst) || n.isKnown(m, o) {
			return dst
		}
		n.overflowed++
		return append(dst[:0], n.overflow...)
	}
	if second := m.Received.Unix(); second != n.second {
		n.cached = n.path.append(n.cached[:0], m, o, n.sink, m.Received)
		n.second = second
	}
	return append(dst, n.cached...)
}

// isKnown reports whether the name of m is known, or may still become so in
// this minute.
func (n *naming) isKnown(m *syslog.Message, o *Origin) bool {
	var name uint64
	name, n.scratch = n.path.name(n.scratch, m, o, n.sink)
	if _, ok := n.known[name]; ok {
		return true
	}
	_, ok := n.previous[name]
	if !ok && n.maxNew > 0 {
		if minute := m.Received.Unix() / 60; minute != n.minute {
			n.minute, n.fresh = minute, 0
		}
		if n.fresh++; n.fresh > n.maxNew {
			if n.fresh == n.maxNew+1 {
				n.log.Warn().Str("path", n.overflow).Int("max_new_files", n.maxNew).
					Msg("more new names a minute than max_new_files: their messages go to the overflow file")
			}
			return false
		}
	}
	if len(n.known) >= maxKnown {
		n.previous = n.known
		n.known = make(map[uint64]struct{})
	}
	n.known[name] = struct{}{}
	return true
}
