package syslog

// recent scans the messages of one socket or connection, and remembers the
// header that it saw last: for a second at a time most messages have the same,
// and comparing takes less than half as long as scanning. Not for concurrent
// use.
type recent struct {
	text     [maxRecent]byte // the header, up to the message
	n        int             // bytes of it; 0: none
	priority uint8
	stamp    stamp
	host     extent
	tag      extent
	pid      extent
}

// maxRecent is the longest header that is remembered, bytes.
const maxRecent = 128

// extent is where a field lies in a header; empty for an absent one.
type extent struct{ begin, end uint8 }

func (e extent) of(b []byte) []byte {
	if e.end == 0 {
		return nil
	}
	return b[e.begin:e.end:e.end]
}

// scan is [Scan], with the same local each time.
func (r *recent) scan(h *Header, b []byte, local bool) {
	if n := r.n; n > 0 && len(b) >= n && string(b[:n]) == string(r.text[:n]) {
		*h = Header{
			Priority: r.priority, stamp: r.stamp,
			Host: r.host.of(b), Tag: r.tag.of(b), PID: r.pid.of(b), Message: b[n:],
		}
		return
	}
	Scan(h, b, local)
	r.keep(h, b)
}

// keep remembers a header of RFC 3164 that ends in a tag and a space: Scan
// makes the same of it whatever follows.
func (r *recent) keep(h *Header, b []byte) {
	n := len(b) - len(h.Message)
	if h.RFC5424 || h.Tag == nil || n > maxRecent || b[n-1] != ' ' {
		return
	}
	// From the end: "host tag[pid]: ", "host tag[]: " or "host tag: ".
	var host, pid extent
	end := n - len(": ")
	if h.PID != nil {
		pid = extent{uint8(end - len("]") - len(h.PID)), uint8(end - len("]"))}
		end = int(pid.begin) - len("[")
	} else if b[end-1] == ']' {
		end -= len("[]")
	}
	tag := extent{uint8(end - len(h.Tag)), uint8(end)}
	if hostLen(b[tag.begin:n]) > 0 {
		return // such as "cafe::": it would be the host of a tag behind it
	}
	if h.Host != nil {
		end = int(tag.begin)
		for b[end-1] == ' ' {
			end--
		}
		host = extent{uint8(end - len(h.Host)), uint8(end)}
	}
	r.n = copy(r.text[:], b[:n])
	r.priority, r.stamp = h.Priority, h.stamp
	r.host, r.tag, r.pid = host, tag, pid
}
