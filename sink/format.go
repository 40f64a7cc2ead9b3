package sink

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"logboom/buffer"
	"logboom/syslog"
)

// Format is the form of a record.
type Format uint8

const (
	Raw       Format = iota // the message alone
	RFC3164                 // a whole syslog message, as on the wire
	RFC5424                 // likewise
	JSON                    // one object
	Templated               // the sink's template
)

// Formats are the names of the formats that a config can give.
var Formats = map[string]Format{"raw": Raw, "rfc3164": RFC3164, "rfc5424": RFC5424, "json": JSON}

func (f Format) String() string {
	return [...]string{"raw", "rfc3164", "rfc5424", "json", "template"}[f]
}

// Escape says which bytes of a message are written as #ooo, their octal
// value, so that a message is one line and cannot forge another.
type Escape uint8

const (
	EscapeLine    Escape = iota // LF, CR and NUL
	EscapeControl               // all control characters but TAB
	EscapeNone
)

// Escapes are their names in a config.
var Escapes = map[string]Escape{"line": EscapeLine, "control": EscapeControl, "none": EscapeNone}

func (e Escape) String() string { return [...]string{"line", "control", "none"}[e] }

// needed reports whether text holds a byte to escape.
func (e Escape) needed(text []byte) bool {
	switch e {
	case EscapeLine:
		return syslog.NeedsLineEscape(text)
	case EscapeControl:
		return syslog.NeedsControlEscape(text)
	}
	return false
}

func (e Escape) append(dst, text []byte) []byte {
	switch e {
	case EscapeLine:
		return syslog.AppendEscapedLine(dst, text)
	case EscapeControl:
		return syslog.AppendEscapedControl(dst, text)
	}
	return append(dst, text...)
}

// Framing is how a record ends.
type Framing uint8

const (
	Lines  Framing = iota // with LF
	Octets                // it begins with its length (RFC 6587 section 3.4.1)
)

// encoder turns messages into the records of one sink. It is guarded by the
// lock of the sink's buffer.
type encoder struct {
	sink     string
	format   Format
	escape   Escape
	framing  Framing
	template *Template
	scratch  []byte // of the escaped text, then of the framed record
	record   []byte
	host     []byte
	text     []byte // of a notice
	joined   []byte // a notice and the record after it
}

// encode returns the record of one message, and whether an LF is still to be
// added. The record is either borrowed from the message or valid until the
// next call.
func (e *encoder) encode(m *syslog.Message, o *Origin) (record []byte, newline bool) {
	if e.format == Raw && e.framing == Lines && !e.escape.needed(m.Message) {
		return m.Message, true
	}
	e.record = e.appendRecord(e.record[:0], m, o)
	if e.framing == Lines {
		return e.record, true
	}
	e.scratch = strconv.AppendInt(e.scratch[:0], int64(len(e.record)), 10)
	e.scratch = append(e.scratch, ' ')
	e.scratch = append(e.scratch, e.record...)
	return e.scratch, false
}

// asLines reports whether lines of a pipe are records as they are. Clean
// lines hold neither CR nor NUL.
func (e *encoder) asLines(clean bool) bool {
	return e.format == Raw && e.framing == Lines && (e.escape == EscapeNone || e.escape == EscapeLine && clean)
}

func (e *encoder) appendRecord(dst []byte, m *syslog.Message, o *Origin) []byte {
	text := m.Message
	switch {
	case e.format == JSON:
		return e.appendJSON(dst, m, o)
	case e.format == Templated:
		from := len(dst)
		dst = e.template.append(dst, m, o, e.sink)
		if e.escape.needed(dst[from:]) {
			e.scratch = e.escape.append(e.scratch[:0], dst[from:])
			dst = append(dst[:from], e.scratch...)
		}
		return dst
	case e.escape.needed(text):
		e.scratch = e.escape.append(e.scratch[:0], text)
		text = e.scratch
	}
	if e.format == Raw {
		return append(dst, text...)
	}
	e.host = o.appendHost(e.host[:0], m)
	f := syslog.Fields{
		Priority: m.Priority, Time: o.time(m), Host: e.host,
		Tag: m.Tag, PID: m.PID, MsgID: m.MsgID, Data: m.Data, Message: text,
	}
	if e.format == RFC3164 {
		return syslog.AppendRFC3164(dst, &f)
	}
	if e.escape.needed(f.Data) {
		f.Data = e.escape.append(nil, f.Data)
	}
	return syslog.AppendRFC5424(dst, &f)
}

// encodeWithNotice is encode with a line before the record that tells of
// dropped messages.
func (e *encoder) encodeWithNotice(gap buffer.Gap, m *syslog.Message, o *Origin) (text []byte, newline bool) {
	e.joined = e.appendNotice(e.joined[:0], gap, m.Received, o)
	record, newline := e.encode(m, o)
	e.joined = append(e.joined, record...)
	return e.joined, newline
}

var noticeTag = []byte("logboom")

// appendNotice appends the line of a gap, framed, in the form of this sink's
// messages; templates are for the messages of others.
func (e *encoder) appendNotice(dst []byte, gap buffer.Gap, received time.Time, o *Origin) []byte {
	const priority = 5<<3 | 4 // syslog.warning
	format := e.format
	defer func() { e.format = format }()
	e.text = e.text[:0]
	if format == Raw || format == Templated {
		e.format = Raw
		e.text = append(e.text, "logboom: "...)
	}
	e.text = strconv.AppendInt(e.text, int64(gap.Messages), 10)
	e.text = append(e.text, " messages dropped: "...)
	e.text = append(e.text, gap.Reason...)

	m := syslog.Message{Received: received}
	m.Priority, m.Tag, m.Message = priority, noticeTag, e.text
	own := Origin{Source: o.Source, Zone: o.Zone, LocalHost: o.LocalHost}
	record, newline := e.encode(&m, &own)
	dst = append(dst, record...)
	if newline {
		dst = append(dst, '\n')
	}
	return dst
}

// appendJSON appends a message as one JSON object on one line. All values
// are strings but data, truncated and partial; what is absent is left out.
func (e *encoder) appendJSON(dst []byte, m *syslog.Message, o *Origin) []byte {
	const layout = time.RFC3339Nano
	dst = append(dst, `{"time":"`...)
	dst = o.time(m).AppendFormat(dst, layout)
	dst = append(dst, `","received":"`...)
	dst = m.Received.AppendFormat(dst, layout)
	dst = append(dst, '"')
	e.host = o.appendHost(e.host[:0], m)
	dst = appendField(dst, "host", e.host)
	dst = appendField(dst, "program", m.Tag)
	dst = appendField(dst, "pid", m.PID)
	dst = appendField(dst, "msgid", m.MsgID)
	dst = appendField(dst, "facility", syslog.FacilityName(m.Facility()))
	dst = appendField(dst, "severity", syslog.SeverityName(m.Severity()))
	dst = appendData(dst, m)
	dst = appendField(dst, "source", o.Source)
	dst = appendField(dst, "peer", m.Peer)
	dst = appendField(dst, "stream", o.Stream)
	if m.Truncated {
		dst = append(dst, `,"truncated":true`...)
	}
	if m.Partial {
		dst = append(dst, `,"partial":true`...)
	}
	dst = append(dst, `,"message":`...)
	dst = appendQuoted(dst, m.Message)
	if !utf8.Valid(m.Message) {
		dst = append(dst, `,"message_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, m.Message)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

func appendData(dst []byte, m *syslog.Message) []byte {
	if m.Data == nil {
		return dst
	}
	data := m.StructuredData()
	separator := `,"data":{`
	for _, id := range slices.Sorted(maps.Keys(data)) {
		dst = append(dst, separator...)
		dst = appendQuoted(dst, id)
		dst = append(dst, ':', '{')
		for i, name := range slices.Sorted(maps.Keys(data[id])) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendQuoted(dst, name)
			dst = append(dst, ':')
			dst = appendQuoted(dst, data[id][name])
		}
		dst = append(dst, '}')
		separator = ","
	}
	if len(data) == 0 {
		return dst
	}
	return append(dst, '}')
}

func appendField[T string | []byte](dst []byte, name string, value T) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return appendQuoted(dst, value)
}

// appendQuoted appends a JSON string (RFC 8259 section 7). Bytes that are no
// UTF-8 become U+FFFD; the text is one line, also for readers that end one at
// U+2028 or U+2029.
func appendQuoted[T string | []byte](dst []byte, text T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			r, size = utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
			if !(r == utf8.RuneError && size == 1) && r != '\u2028' && r != '\u2029' && r > 0x9f {
				i += size
				continue
			}
			dst = append(dst, text[from:i]...)
			switch {
			case r == utf8.RuneError:
				dst = append(dst, `\ufffd`...)
			default:
				dst = append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
			}
		} else {
			dst = append(dst, text[from:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
		}
		i += size
		from = i
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}
