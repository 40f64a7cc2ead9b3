package syslog

import "bytes"

// Scan fills h from b, the bytes of one message without its framing. It never
// fails: what it does not understand is part of h.Message, so no byte of b is
// lost but the mark of byte order of RFC 5424. It allocates nothing; the
// slices of h point into b.
//
// local says that b came over a unix socket. There a word is a host only if a
// tag follows it: nginx writes a host on such a socket, glibc does not.
//
// A BSD header (RFC 3164) is read as programs write it rather than as the RFC
// has it; see stamp for its times.
func Scan(h *Header, b []byte, local bool) {
	*h = Header{Priority: DefaultPriority, Message: b}

	// From here on h.Message is only ever set to a shorter end of itself, and
	// only once what stands before it is understood.
	n := scanPriority(&h.Priority, b)
	if n == 0 {
		return // RFC 3164 section 4.3.3: all of it is the message
	}
	h.Message = b[n:]
	if !scanRFC5424(h, b[n:]) {
		scanRFC3164(h, b[n:], local)
	}
}

// TrimDatagram takes off the framing at the end of a datagram: one NUL (some
// C programs send their string's end), then one CR LF or LF. It returns a part
// of b.
func TrimDatagram(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{0})
	if trimmed, found := bytes.CutSuffix(b, []byte{'\n'}); found {
		return bytes.TrimSuffix(trimmed, []byte{'\r'})
	}
	return b
}

// scanPriority reads a PRI, "<0>" to "<191>" without a leading zero, and
// returns its length, or 0 if b does not begin with one.
func scanPriority(priority *uint8, b []byte) int {
	if len(b) < 3 || b[0] != '<' {
		return 0
	}
	end := bytes.IndexByte(b[:min(len(b), len("<191>"))], '>')
	if end < 2 || b[1] == '0' && end > 2 {
		return 0
	}
	p := number(b[1:end])
	if p < 0 || p > 191 {
		return 0
	}
	*priority = uint8(p)
	return end + 1
}

// scanRFC5424 reads what follows PRI if it is VERSION 1, a time or "-", and
// four words (RFC 5424 section 6.2). Otherwise it reports false and leaves h
// as it was. The lengths of section 6.2 bind senders; no word is too long here.
func scanRFC5424(h *Header, b []byte) bool {
	if len(b) < len("1 - h a p m") || b[0] != '1' || b[1] != ' ' {
		return false
	}
	var s stamp
	rest := b[2:]
	n := 1
	if rest[0] != '-' {
		// The other forms of ISO times are taken too, but for the space in the
		// middle: here a space ends a word.
		n = scanISO(&s, rest)
		if n == 0 || rest[len("2006-01-02")] == ' ' || !s.isDate(int(s.year)) {
			return false
		}
	}
	rest = rest[n:]

	var words [4][]byte
	for i := range words {
		if len(rest) == 0 || rest[0] != ' ' {
			return false
		}
		rest = rest[1:]
		n := span(rest, wordByte)
		if n == 0 {
			return false
		}
		words[i], rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 && rest[0] != ' ' {
		return false // a control byte within the last word
	}

	h.RFC5424 = true
	h.stamp = s
	h.Host, h.Tag = present(words[0]), present(words[1])
	h.PID, h.MsgID = present(words[2]), present(words[3])
	scanContent(h, afterSpace(rest))
	return true
}

// scanContent reads structured data and message, what is left of an RFC 5424
// message after its last word. Data that is not valid is a part of the message.
func scanContent(h *Header, b []byte) {
	h.Message = b
	n := dataLen(b)
	if len(b) > 0 && b[0] == '-' {
		n = 1
	}
	if n > 0 && (n == len(b) || b[n] == ' ') {
		h.Data = present(b[:n:n])
		h.Message = afterSpace(b[n:])
	}
	h.Message = bytes.TrimPrefix(h.Message, []byte("\xef\xbb\xbf"))
}

// scanRFC3164 reads what follows PRI in a BSD header: a time, then a host, a
// tag, both or neither. Without a time there is no header (RFC 3164 section
// 4.3.2).
func scanRFC3164(h *Header, b []byte, local bool) {
	rest := b
	if len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	n := scanStamp(&h.stamp, rest)
	if n == 0 {
		return
	}
	scanOrigin(h, afterSpace(rest[n:]), local)
}

// scanOrigin reads host and tag, and leaves the rest as the message. Spaces
// before a tag are header, however many: nginx writes an empty host while it
// starts. Where no tag follows, only the space after the host is.
func scanOrigin(h *Header, b []byte, local bool) {
	h.Message = b
	rest := trimSpaces(b)
	n := hostLen(rest)
	if n == 0 {
		scanTag(h, rest)
		return
	}
	after := trimSpaces(rest[n:])
	switch {
	case scanTag(h, after):
	case local:
		scanTag(h, rest) // "cafe::" is an address, and was a tag
		return
	case loneColon(after):
		h.Message = afterSpace(after[1:])
	case len(rest) < len(b):
		return // more spaces than one and no tag: all is message
	default:
		h.Message = afterSpace(rest[n:])
	}
	h.Host = present(rest[:n:n])
}

// scanTag reads "tag: ", "tag[pid]: ", or either at the end of b, and sets the
// message to what follows. It reports whether b begins so; if not, h is as it
// was. A control byte is in no tag, so that a tag never forges a line.
func scanTag(h *Header, b []byte) bool {
	n := span(b, tagByte)
	tag, pid := b[:n:n], []byte(nil)
	if n < len(b) && b[n] == '[' {
		start := n + 1
		end := start + span(b[start:], pidByte)
		if end+1 >= len(b) || b[end] != ']' || b[end+1] != ':' {
			return false
		}
		if end > start {
			pid = b[start:end:end]
		}
		n = end + 2
	} else {
		if n == 0 || b[n-1] != ':' {
			return false
		}
		tag = b[: n-1 : n-1]
	}
	if len(tag) == 0 || n < len(b) && b[n] != ' ' {
		return false
	}
	h.Tag, h.PID, h.Message = tag, pid, afterSpace(b[n:])
	return true
}

// hostLen returns the length of the word that b begins with if that is a host:
// an IP address, a name of letters, digits, '.', '_' and '-' that ends in a
// letter or digit, or "-", which stands for none. Otherwise it returns 0.
func hostLen(b []byte) int {
	n := span(b, hostByte)
	if n < len(b) && b[n] == ':' {
		// An IPv6 address, or a tag. The word may be all of a long message.
		n = span(b[:min(len(b), maxIPv6+1)], wordByte)
		if !isIPv6(b[:n]) {
			return 0
		}
	} else if n == 0 || class[b[n-1]]&alnumByte == 0 && !(n == 1 && b[0] == '-') {
		return 0
	}
	if n < len(b) && b[n] != ' ' {
		return 0
	}
	return n
}

// maxIPv6 bounds the text of an address: 45 bytes, '%' and an interface's name.
const maxIPv6 = 64

// isIPv6 reports whether b is an IPv6 address as RFC 4291 section 2.2 writes
// it, with an RFC 4007 zone or not. netip.ParseAddr would allocate. (An IPv4
// address needs no such test: it has the form of a name.)
func isIPv6(b []byte) bool {
	b, zone, zoned := bytes.Cut(b, []byte{'%'})
	if zoned && len(zone) == 0 {
		return false
	}
	groups, elided := 0, false
	for len(b) > 0 {
		n := hexLen(b)
		switch {
		case n > 0 && n < len(b) && b[n] == '.':
			if !isIPv4(b) {
				return false
			}
			groups, b = groups+2, nil
		case n > 0:
			groups, b = groups+1, b[n:]
		case elided || len(b) < 2 || b[0] != ':' || b[1] != ':':
			return false
		default: // "::" where the text begins
			elided, b = true, b[2:]
			continue
		}
		switch {
		case len(b) == 0:
		case len(b) >= 2 && b[0] == ':' && b[1] == ':' && !elided:
			elided, b = true, b[2:]
		case len(b) >= 2 && b[0] == ':' && b[1] != ':':
			b = b[1:]
		default:
			return false
		}
	}
	if elided {
		return groups < 8
	}
	return groups == 8
}

// hexLen returns how many of the first four bytes of b are hexadecimal digits.
func hexLen(b []byte) int {
	return span(b[:min(len(b), 4)], hexByte)
}

// isIPv4 reports whether b is four decimal bytes with dots between them, none
// with a leading zero.
func isIPv4(b []byte) bool {
	for i := range 4 {
		if i > 0 {
			if len(b) == 0 || b[0] != '.' {
				return false
			}
			b = b[1:]
		}
		n := 0
		for n < len(b) && n < 3 && isDigit(b[n]) {
			n++
		}
		if n == 0 || n > 1 && b[0] == '0' || number(b[:n]) > 255 {
			return false
		}
		b = b[n:]
	}
	return len(b) == 0
}

// loneColon reports whether b begins with a colon that is a word, or ends one.
func loneColon(b []byte) bool {
	return len(b) > 0 && b[0] == ':' && (len(b) == 1 || b[1] == ' ')
}

// present returns nil for "-", the NILVALUE of RFC 5424, else word.
func present(word []byte) []byte {
	if len(word) == 1 && word[0] == '-' {
		return nil
	}
	return word
}

// afterSpace takes one space off the front of b, if there is one.
func afterSpace(b []byte) []byte {
	if len(b) > 0 && b[0] == ' ' {
		return b[1:]
	}
	return b
}

// trimSpaces takes all spaces off the front of b.
func trimSpaces(b []byte) []byte {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	return b
}

// The classes of bytes that words are made of.
const (
	wordByte  = 1 << iota // no space, no control byte; RFC 5424 has ASCII only
	alnumByte             // an ASCII letter or digit
	hexByte               // a hexadecimal digit
	hostByte              // of a host name
	tagByte               // of a tag, its colon included
	pidByte               // of the pid in a tag's brackets
	nameByte              // of an SD-NAME, RFC 5424 section 6.3
)

// class holds the classes of each byte, as bits: one look-up a byte finds a
// word's end and proves the word at once.
var class = classify()

func classify() (class [256]uint8) {
	for i := range class {
		c := byte(i)
		if c <= ' ' || c == 0x7f {
			continue
		}
		k := wordByte
		lower := c | 0x20
		if isDigit(c) || lower >= 'a' && lower <= 'z' {
			k |= alnumByte | hostByte
		}
		if isDigit(c) || lower >= 'a' && lower <= 'f' {
			k |= hexByte
		}
		if c == '.' || c == '_' || c == '-' {
			k |= hostByte
		}
		if bytes.IndexByte([]byte(`"{}=,<>[]`), c) < 0 {
			k |= tagByte
		}
		if c != ']' {
			k |= pidByte
		}
		if c < 0x7f && bytes.IndexByte([]byte(`=]"`), c) < 0 {
			k |= nameByte
		}
		class[i] = uint8(k)
	}
	return class
}

// span returns how many bytes at the front of b are of the class k.
func span(b []byte, k uint8) int {
	for i, c := range b {
		if class[c]&k == 0 {
			return i
		}
	}
	return len(b)
}

func isDigit(c byte) bool { return c-'0' <= 9 } // a c below '0' wraps round

// number returns the value of b, a few decimal digits, or -1 if one is none.
func number(b []byte) int {
	n := 0
	for _, c := range b {
		if !isDigit(c) {
			return -1
		}
		n = 10*n + int(c-'0')
	}
	return n
}
