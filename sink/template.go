package sink

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"logboom/syslog"
)

// Template is text with variables, parsed: a path, or the form of a line.
//
// Variables are written $name, ${name} or ${name:-default}; $$ is a dollar.
// They are host, program, pid, facility, severity, source, sink, stream,
// peer, time, message, 1 to 9 (the words of the message, as in awk) and
// json.KEY (of a message that is a JSON object; KEY may be dotted).
type Template struct {
	text  string
	parts []part
}

// part is a literal, a strftime mark or a variable.
type part struct {
	literal  string
	mark     mark
	variable variable
	key      string // of json, the word's number of word
	fallback string
}

type variable uint8

const (
	noVariable variable = iota
	varHost
	varProgram
	varPID
	varFacility
	varSeverity
	varSource
	varSink
	varStream
	varPeer
	varTime
	varMessage
	varWord
	varJSON
)

var variables = map[string]variable{
	"host": varHost, "program": varProgram, "pid": varPID, "facility": varFacility,
	"severity": varSeverity, "source": varSource, "sink": varSink, "stream": varStream,
	"peer": varPeer, "time": varTime, "message": varMessage,
}

// ParseTemplate parses a template without strftime marks.
func ParseTemplate(text string) (*Template, error) { return parse(text, false) }

func parse(text string, marks bool) (*Template, error) {
	t := &Template{text: text}
	var literal []byte
	flush := func() {
		if len(literal) > 0 {
			t.parts = append(t.parts, part{literal: string(literal)})
			literal = literal[:0]
		}
	}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '$' && strings.HasPrefix(text[i:], "$$"), marks && c == '%' && strings.HasPrefix(text[i:], "%%"):
			literal = append(literal, c)
			i += 2
		case c == '$':
			p, n, err := parseVariable(text[i:])
			if err != nil {
				return nil, err
			}
			flush()
			t.parts = append(t.parts, p)
			i += n
		case marks && c == '%':
			if i+1 == len(text) {
				return nil, fmt.Errorf("%q ends in a lone %%; write %%%% for a percent sign", text)
			}
			m := mark(text[i+1])
			if _, ok := m.append(nil, time.Time{}); !ok {
				return nil, fmt.Errorf("unknown time mark %q in %q", text[i:i+2], text)
			}
			flush()
			t.parts = append(t.parts, part{mark: m})
			i += 2
		default:
			literal = append(literal, c)
			i++
		}
	}
	flush()
	return t, nil
}

// parseVariable parses the variable that text begins with and returns its
// length.
func parseVariable(text string) (part, int, error) {
	var p part
	name, n := "", 0
	if strings.HasPrefix(text, "${") {
		end := strings.IndexByte(text, '}')
		if end < 0 {
			return p, 0, fmt.Errorf("%q has no closing brace", text)
		}
		name, n = text[2:end], end+1
		name, p.fallback, _ = strings.Cut(name, ":-")
	} else {
		n = 1
		if n < len(text) && isDigit(text[n]) {
			n++
		} else {
			for n < len(text) && isNameByte(text[n]) {
				n++
			}
		}
		name = text[1:n]
	}
	switch key, isJSON := strings.CutPrefix(name, "json."); {
	case isJSON && key != "":
		p.variable, p.key = varJSON, key
	case len(name) == 1 && name >= "1" && name <= "9":
		p.variable, p.key = varWord, name
	default:
		p.variable = variables[name]
	}
	if p.variable == noVariable {
		return p, 0, fmt.Errorf("unknown variable %q; known are $host $program $pid $facility $severity $source $sink $stream $peer $time $message $1 to $9 ${json.KEY}; $$ is a dollar", text[:n])
	}
	return p, n, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c) || c == '_'
}

// usesPeer reports whether a sender's address may be needed to render them.
func usesPeer(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.variable == varPeer || p.variable == varHost })
}

// String is the template as it was written.
func (t *Template) String() string { return t.text }

// append renders the template for one message.
func (t *Template) append(dst []byte, m *syslog.Message, o *Origin, sink string) []byte {
	for i := range t.parts {
		p := &t.parts[i]
		if p.variable == noVariable {
			dst = append(dst, p.literal...)
			continue
		}
		before := len(dst)
		if dst = p.appendValue(dst, m, o, sink); len(dst) == before {
			dst = append(dst, p.fallback...)
		}
	}
	return dst
}

// appendValue appends the value of a variable; nothing if there is none.
func (p *part) appendValue(dst []byte, m *syslog.Message, o *Origin, sink string) []byte {
	switch p.variable {
	case varHost:
		return o.appendHost(dst, m)
	case varProgram:
		return append(dst, m.Tag...)
	case varPID:
		return append(dst, m.PID...)
	case varFacility:
		return append(dst, syslog.FacilityName(m.Facility())...)
	case varSeverity:
		return append(dst, syslog.SeverityName(m.Severity())...)
	case varSource:
		return append(dst, o.Source...)
	case varSink:
		return append(dst, sink...)
	case varStream:
		return append(dst, o.Stream...)
	case varPeer:
		return append(dst, m.Peer...)
	case varTime:
		return m.Received.AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	case varMessage:
		return append(dst, m.Message...)
	case varWord:
		return append(dst, word(m.Message, int(p.key[0]-'0'))...)
	case varJSON:
		return appendJSONValue(dst, m.Message, p.key)
	}
	return dst
}

// word returns the nth word of text, from 1, as awk counts them.
func word(text []byte, n int) []byte {
	const space = " \t\n"
	for {
		text = bytes.TrimLeft(text, space)
		end := bytes.IndexAny(text, space)
		if end < 0 {
			end = len(text)
		}
		if n--; n == 0 {
			return text[:end]
		}
		text = text[end:]
		if len(text) == 0 {
			return nil
		}
	}
}

// appendJSONValue appends the value at a dotted key of a message that is a
// JSON object: a string's text, anything else as it is written.
func appendJSONValue(dst, text []byte, key string) []byte {
	if start := bytes.TrimLeft(text, " \t"); len(start) == 0 || start[0] != '{' {
		return dst
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return dst
	}
	value, ok := object[key]
	if first, rest, dotted := strings.Cut(key, "."); !ok && dotted {
		return appendJSONValue(dst, object[first], rest)
	}
	var s string
	switch {
	case !ok || string(value) == "null":
		return dst
	case json.Unmarshal(value, &s) == nil:
		return append(dst, s...)
	}
	return append(dst, value...)
}

// mark is the letter of a strftime(3) mark.
type mark byte

// layouts are the marks that package time can write, in its words.
var layouts = map[mark]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05",
	'y': "06", 'e': "_2", 'j': "002", 'I': "03", 'p': "PM",
	'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'z': "-0700", 'Z': "MST", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04",
}

// append renders the mark; false if there is no such mark.
func (m mark) append(dst []byte, t time.Time) ([]byte, bool) {
	if layout, ok := layouts[m]; ok {
		return t.AppendFormat(dst, layout), true
	}
	year, week := t.ISOWeek()
	switch m {
	case 's':
		return strconv.AppendInt(dst, t.Unix(), 10), true
	case 'G':
		return strconv.AppendInt(dst, int64(year), 10), true
	case 'V':
		return append(dst, byte('0'+week/10), byte('0'+week%10)), true
	case 'u':
		return append(dst, byte('0'+(int(t.Weekday())+6)%7+1)), true
	case 'w':
		return append(dst, byte('0'+int(t.Weekday()))), true
	}
	return dst, false
}
