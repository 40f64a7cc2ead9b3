package sink

import (
	"hash/maphash"

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
	moment moment
	second int64 // the key below holds for messages received in this second
	cached []byte

	// What variables make of names that senders choose is limited: maxNew of
	// them a minute; what is over goes to the overflow path. Names are
	// remembered by a hash, which a sender cannot work out, in two generations,
	// so that those in use stay known.
	maxNew     int // 0: no limit
	minute     int64
	fresh      int  // names that were new in this minute
	warned     bool // in this minute
	seed       maphash.Seed
	known      map[uint64]struct{}
	previous   map[uint64]struct{}
	family     *family             // of path
	existing   map[uint64]struct{} // names that are on disk, see existing.go
	scratch    []byte
	overflow   string
	over       bool   // the last key is the overflow path
	overflowed uint64 // messages taken for it
}

// maxKnown bounds a generation of names.
const maxKnown = 1 << 16

func newNaming(sink string, log zerolog.Logger) naming {
	return naming{sink: sink, log: log, seed: maphash.MakeSeed(), known: make(map[uint64]struct{})}
}

// lookAround is the existing that goes with a path. It reads folders.
func (n *naming) lookAround(path *Path, maxNew int) map[uint64]struct{} {
	if path == nil || !path.variables || maxNew == 0 {
		return nil
	}
	return newFamily(path).existing(n.seed)
}

// set changes the path. Names that were known stay so: a reload is no reason
// to send what they get to the overflow path. Nor are those new that exist.
func (n *naming) set(path *Path, maxNew int, existing map[uint64]struct{}) {
	n.existing = existing
	n.path, n.maxNew, n.second, n.moment = path, maxNew, -1, moment{}
	if path != nil {
		n.overflow, n.family = path.overflow(), newFamily(path)
	}
}

// fixed reports whether the key does not depend on the message.
func (n *naming) fixed() bool { return n.path == nil || !n.path.variables }

// perBurst reports whether all messages of one moment and origin have one key.
func (n *naming) perBurst() bool {
	return n.fixed() || !n.path.usesMessage()
}

// key appends the key of m to dst. It is taken or not; if so, took is next.
func (n *naming) key(dst []byte, m *syslog.Message, o *Origin, b *buffer.Buffer) []byte {
	n.over = false
	if n.path == nil {
		return dst
	}
	if n.path.variables {
		return n.admit(n.render(dst, m, o), m, o, b)
	}
	if second := m.Received.Unix(); second != n.second {
		n.cached = n.render(n.cached[:0], m, o)
		n.second = second
	}
	return append(dst, n.cached...)
}

// admit returns the rendered path of m, or what the overflow path makes of it.
func (n *naming) admit(path []byte, m *syslog.Message, o *Origin, b *buffer.Buffer) []byte {
	n.over = !b.IsOpen(path) && !n.isKnown(m, o, path)
	if n.over {
		return append(path[:0], n.overflow...)
	}
	return path
}

// render appends the path of m.
func (n *naming) render(dst []byte, m *syslog.Message, o *Origin) []byte {
	n.moment.render(n.path, m.Received)
	return n.path.append(dst, m, o, n.sink, &n.moment)
}

// took counts messages that were taken with the key that was found last.
func (n *naming) took(messages int) {
	if n.over {
		n.overflowed += uint64(messages)
	}
}

// isKnown reports whether the name of m, whose path is given, is known, or may
// still become so in this minute.
func (n *naming) isKnown(m *syslog.Message, o *Origin, path []byte) bool {
	n.scratch = n.path.appendValues(n.scratch[:0], m, o, n.sink)
	name := maphash.Bytes(n.seed, n.scratch)
	if _, ok := n.known[name]; ok {
		return true
	}
	if _, ok := n.previous[name]; !ok && n.maxNew > 0 && !n.exists(path) && !n.mayBeNew(m.Received.Unix()/60) {
		return false
	}
	if len(n.known) >= maxKnown {
		n.previous = n.known
		n.known = make(map[uint64]struct{})
	}
	n.known[name] = struct{}{}
	return true
}

// exists reports whether the name in a path was on disk already.
func (n *naming) exists(path []byte) bool {
	if len(n.existing) == 0 {
		return false
	}
	_, ok := n.existing[n.family.nameOf(n.seed, string(path))]
	return ok
}

// mayBeNew reports whether a new name may come up in this minute, and counts
// it. The first that may not is logged, with the minute.
func (n *naming) mayBeNew(minute int64) bool {
	if minute != n.minute {
		n.minute, n.fresh, n.warned = minute, 0, false
	}
	if n.fresh < n.maxNew {
		n.fresh++
		return true
	}
	if !n.warned {
		n.warned = true
		n.log.Warn().Str("path", n.overflow).Int("max_new_files", n.maxNew).
			Msg("more new names a minute than max_new_files: their messages go to the overflow file")
	}
	return false
}
