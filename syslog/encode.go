package syslog

import (
	"bytes"
	"time"
)

// Fields is what a message is encoded from. Nil is absent; the encoders borrow
// the slices for the call and keep none.
type Fields struct {
	Priority uint8 // facility*8 + severity, 0 to 191
	Time     time.Time
	Host     []byte
	Tag      []byte // APP-NAME of RFC 5424
	PID      []byte // PROCID; RFC 3164 has one only beside a tag
	MsgID    []byte // RFC 5424 only
	Data     []byte // valid structured data as it stands, RFC 5424 only
	Message  []byte
}

// The most bytes that a sender may put into a word: RFC 5424 section 6.
const (
	maxHost  = 255
	maxTag   = 48
	maxPID   = 128
	maxMsgID = 32
)

// AppendRFC5424 appends f as one RFC 5424 message, without framing. The time
// has microseconds and the offset of its own zone. Words are cut to the RFC's
// lengths, and every byte in them that is not printable ASCII becomes '_'.
//
// Data and Message are written as they stand, and either may hold a line feed:
// where one ends the frame, escape both before (see [AppendEscapedLine]).
func AppendRFC5424(dst []byte, f *Fields) []byte {
	dst = appendPriority(dst, f.Priority)
	dst = append(dst, '1', ' ')
	dst = appendTime(dst, f.Time)
	dst = appendWord(dst, f.Host, maxHost)
	dst = appendWord(dst, f.Tag, maxTag)
	dst = appendWord(dst, f.PID, maxPID)
	dst = appendWord(dst, f.MsgID, maxMsgID)
	dst = append(dst, ' ')
	if len(f.Data) > 0 {
		dst = append(dst, f.Data...)
	} else {
		dst = append(dst, '-')
	}
	if len(f.Message) == 0 {
		return dst
	}
	dst = append(dst, ' ')
	return append(dst, f.Message...)
}

// AppendRFC3164 appends f as one message in the form of RFC 3164 section 4.1,
// without framing. The time is the clock of f.Time's own zone, since the form
// has no place for one. Bytes that a host, tag or pid cannot hold become '_',
// and a host ends in a letter or digit, so that [Scan] reads back what was
// written. What the form cannot carry: a message without a tag may itself begin
// like a tag, or where the host is absent too, like a host; a first word of four
// digits may be read as a year, and a tag without a host, with its colon, as an
// IPv6 address. A PID without a tag is left out.
//
// Message is written as it stands: where a line feed ends the frame, escape it
// before.
func AppendRFC3164(dst []byte, f *Fields) []byte {
	dst = appendPriority(dst, f.Priority)
	dst = appendBSDTime(dst, f.Time)
	dst = append(dst, ' ')
	if len(f.Host) > 0 {
		dst = appendHost(dst, f.Host)
	}
	if len(f.Tag) > 0 {
		dst = appendClean(dst, f.Tag, tagByte)
		if len(f.PID) > 0 {
			dst = append(dst, '[')
			dst = appendClean(dst, f.PID, pidByte)
			dst = append(dst, ']')
		}
		dst = append(dst, ':', ' ')
	}
	return append(dst, f.Message...)
}

// appendPriority appends a PRI: no leading zero (RFC 5424 section 6.2.1).
func appendPriority(dst []byte, p uint8) []byte {
	dst = append(dst, '<')
	if p >= 100 {
		dst = append(dst, '0'+p/100)
	}
	if p >= 10 {
		dst = append(dst, '0'+p/10%10)
	}
	return append(dst, '0'+p%10, '>')
}

// appendTime appends t as RFC 5424 section 6.2.3 has it, with six digits of
// fraction. An offset with seconds, which only times before 1972 have, cannot
// be written there: such a time is in UTC.
func appendTime(dst []byte, t time.Time) []byte {
	_, offset := t.Zone()
	if offset%60 != 0 {
		t, offset = t.UTC(), 0
	}
	year, month, day := t.Date()
	dst = appendTwo(dst, year/100)
	dst = appendTwo(dst, year%100)
	dst = appendTwo(append(dst, '-'), int(month))
	dst = appendTwo(append(dst, '-'), day)
	dst = appendClock(append(dst, 'T'), t)
	micro := t.Nanosecond() / 1000
	dst = appendTwo(append(dst, '.'), micro/10000)
	dst = appendTwo(dst, micro/100%100)
	dst = appendTwo(dst, micro%100)
	if offset == 0 {
		return append(dst, 'Z')
	}
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	dst = appendTwo(append(dst, sign), offset/3600)
	return appendTwo(append(dst, ':'), offset/60%60)
}

// appendBSDTime appends t as "Mmm dd hh:mm:ss", the day padded with a space.
func appendBSDTime(dst []byte, t time.Time) []byte {
	_, month, day := t.Date()
	dst = append(dst, month.String()[:3]...)
	dst = append(dst, ' ')
	if day < 10 {
		dst = append(dst, ' ', '0'+byte(day))
	} else {
		dst = appendTwo(dst, day)
	}
	return appendClock(append(dst, ' '), t)
}

// appendClock appends the time of day that t's zone has, in whole seconds.
func appendClock(dst []byte, t time.Time) []byte {
	hour, minute, second := t.Clock()
	dst = appendTwo(dst, hour)
	dst = appendTwo(append(dst, ':'), minute)
	return appendTwo(append(dst, ':'), second)
}

// appendTwo appends n, 0 to 99, as two digits.
func appendTwo(dst []byte, n int) []byte {
	return append(dst, '0'+byte(n/10), '0'+byte(n%10))
}

// appendWord appends a space and word as RFC 5424 has words: "-" for none, at
// most limit bytes, printable ASCII.
func appendWord(dst, word []byte, limit int) []byte {
	dst = append(dst, ' ')
	if len(word) == 0 {
		return append(dst, '-')
	}
	for _, c := range word[:min(len(word), limit)] {
		if c <= ' ' || c >= 0x7f {
			c = '_'
		}
		dst = append(dst, c)
	}
	return dst
}

// appendHost appends host and a space as hostLen reads it back, or nothing if
// there is no letter or digit in it.
func appendHost(dst, host []byte) []byte {
	if hostLen(host) != len(host) {
		for len(host) > 0 && class[host[len(host)-1]]&alnumByte == 0 {
			host = host[:len(host)-1]
		}
		if len(host) == 0 {
			return dst
		}
		dst = appendClean(dst, host, hostByte)
	} else {
		dst = append(dst, host...)
	}
	return append(dst, ' ')
}

// appendClean appends b with '_' for every byte that is not of the class k.
func appendClean(dst, b []byte, k uint8) []byte {
	for _, c := range b {
		if class[c]&k == 0 {
			c = '_'
		}
		dst = append(dst, c)
	}
	return dst
}

// NeedsLineEscape reports whether b holds a byte that [AppendEscapedLine]
// writes otherwise. Few messages do; asking first saves the copy.
func NeedsLineEscape(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 || bytes.IndexByte(b, 0) >= 0
}

// AppendEscapedLine appends b with LF, CR and NUL as #012, #015 and #000, in
// octal as syslogds write them, so that b is one line and cannot forge another.
func AppendEscapedLine(dst, b []byte) []byte {
	start := 0 // of what is not yet written
	for i, c := range b {
		if c == '\n' || c == '\r' || c == 0 {
			dst = append(dst, b[start:i]...)
			dst = appendOctal(dst, c)
			start = i + 1
		}
	}
	return append(dst, b[start:]...)
}

// NeedsControlEscape reports whether b holds a byte that
// [AppendEscapedControl] writes otherwise.
func NeedsControlEscape(b []byte) bool {
	for i := range b {
		if controlLen(b[i:]) > 0 {
			return true
		}
	}
	return false
}

// AppendEscapedControl appends b with every control byte but TAB as '#' and
// three octal digits, so that b does nothing to a terminal. The C1 controls of
// Unicode are escaped byte by byte.
func AppendEscapedControl(dst, b []byte) []byte {
	start := 0 // of what is not yet written
	for i := 0; i < len(b); i++ {
		n := controlLen(b[i:])
		if n == 0 {
			continue
		}
		dst = append(dst, b[start:i]...)
		start = i + n
		for ; i < start; i++ {
			dst = appendOctal(dst, b[i])
		}
		i--
	}
	return append(dst, b[start:]...)
}

// controlLen returns the length of the control character that b, not empty,
// begins with: 2 for U+0080 to U+009F in UTF-8, 1 for one byte, 0 for none. The
// byte 0xc2 is never inside another character, so b may begin anywhere; the
// bytes 0x80 to 0x9f may be, and mean nothing alone.
func controlLen(b []byte) int {
	c := b[0]
	switch {
	case c < ' ' && c != '\t' || c == 0x7f:
		return 1
	case c == 0xc2 && len(b) > 1 && b[1] >= 0x80 && b[1] <= 0x9f:
		return 2
	}
	return 0
}

// appendOctal appends c as '#' and three octal digits.
func appendOctal(dst []byte, c byte) []byte {
	return append(dst, '#', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
}
