package syslog

import (
	"bytes"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/influxdata/go-syslog/v3/rfc3164"
	"github.com/influxdata/go-syslog/v3/rfc5424"
)

// Messages that fuzzing starts from, besides the corpus under testdata.
var seeds = []string{
	nginxLine, rfc5424Line,
	"<13>",
	"<13>Mar 15 2026 10:20:30.5: 2001:db8:: named[1]: x",
	"<13>Mar  5 10:20:30 2026  app: x",
	"<13>2026-03-15T10:20:30.5+01:00 h1 : x",
	"<13>Feb 29 10:20:30 - x",
	"<14>1 2026-03-15T10:20:30.123456789+01:00 h a p m [x@1 a=\"q\\\"b\" b=\"c\\d\"][y] \xef\xbb\xbfdone",
	"<14>1 - - - - - [a b=\"c] x",
	"<34>1 - h a p m",
}

// header is what a header looks like when each of its fields is a NUL: all
// that Scan may take out of a message and put into no field.
var header = regexp.MustCompile(strings.NewReplacer(
	"DATE", `\d{4}-\d\d-\d\d`,
	"CLOCK", `\d\d:\d\d:\d\d(\.\d+)?`,
	"ZONE", `([Zz]|[+-]\d\d(:?\d\d)?)?`,
	"WORD", `(\x00|-)`,
	"TAG", `\x00(\[\x00?\])?:`,
).Replace(`^(<\d{1,3}>(` +
	`1 (-|DATE[Tt]CLOCKZONE)( WORD){4}( (WORD( |$))?)?\x{feff}?|` +
	` ?((?i:[a-z]{3})  ?\d{1,2}( \d{4})? CLOCK( \d{4})?|DATE[Tt ]CLOCKZONE):?` +
	`( ( *WORD( |$)| *(WORD +)?(TAG|:)( |$))?)?` +
	`)?)?$`))

// FuzzScan checks what holds for any bytes: every field lies in them, the
// message is all that follows the header, and the header holds nothing else.
func FuzzScan(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(checkScan)
}

func checkScan(t *testing.T, b []byte, local bool) {
	before := string(b)
	h := Header{Host: []byte("old"), Data: []byte("old"), RFC5424: true, stamp: stamp{has: hasClock}}
	Scan(&h, b, local)
	if string(b) != before {
		t.Fatal("Scan writes into its input")
	}
	if h.Priority > 191 || h.Host != nil && len(h.Host) == 0 || h.Tag != nil && len(h.Tag) == 0 {
		t.Fatalf("%+v", h)
	}
	at := len(b) - len(h.Message)
	if h.Message == nil && b != nil || len(h.Message) > 0 && &h.Message[0] != &b[at] {
		t.Fatalf("the message is %q", h.Message)
	}
	if rest := blank(t, b[:at], &h); !header.MatchString(rest) {
		t.Fatalf("header %q is %q without its fields", b[:at], rest)
	}
	if (h.StructuredData() != nil) != (h.Data != nil) {
		t.Fatalf("data %q is read as %v", h.Data, h.StructuredData())
	}
	if got := h.Time(cameAt, location(t, "Europe/Berlin")); !h.HasTime() && got != cameAt {
		t.Fatalf("no time is %v", got)
	}
	checkEncoded(t, &h)
}

// blank returns head with a NUL in the place of each field of h.
func blank(t *testing.T, head []byte, h *Header) string {
	var rest []byte
	start := uintptr(unsafe.Pointer(unsafe.SliceData(head)))
	end := 0
	for _, field := range [][]byte{h.Host, h.Tag, h.PID, h.MsgID, h.Data} {
		if field == nil {
			continue
		}
		at := int(uintptr(unsafe.Pointer(unsafe.SliceData(field))) - start)
		if at < end || at+len(field) > len(head) {
			t.Fatalf("field %q is not in the header %q, or not in its place", field, head)
		}
		rest = append(append(rest, head[end:at]...), 0)
		end = at + len(field)
	}
	return string(append(rest, head[end:]...))
}

// checkEncoded checks that RFC 5424 carries the message and data of h.
func checkEncoded(t *testing.T, h *Header) {
	f := Fields{Priority: h.Priority, Time: h.Time(cameAt, time.UTC), Host: h.Host, Tag: h.Tag,
		PID: h.PID, MsgID: h.MsgID, Data: h.Data, Message: h.Message}
	b := AppendRFC5424(nil, &f)
	var again Header
	Scan(&again, b, false)
	message := bytes.TrimPrefix(h.Message, []byte("\xef\xbb\xbf"))
	if !again.RFC5424 || !bytes.Equal(again.Message, message) || !bytes.Equal(again.Data, h.Data) {
		t.Fatalf("%q is read back as data %q, message %q", b, again.Data, again.Message)
	}
}

// deviation is where we read a message otherwise than go-syslog, on purpose.
type deviation struct {
	name string
	is   func(b []byte, theirs fields) bool
}

var deviations5424 = []deviation{
	{"only VERSION 1 is a header", func(b []byte, _ fields) bool {
		return !bytes.Contains(b[:min(len(b), 7)], []byte(">1 "))
	}},
}

var deviations3164 = []deviation{
	{"its first word is a host, whatever it holds: nginx:", func(_ []byte, theirs fields) bool {
		return hostLen([]byte(theirs.host)) != len(theirs.host)
	}},
	{"four digits after the time are a year", func(_ []byte, theirs fields) bool {
		return scanTrailingYear(&stamp{}, []byte(" "+theirs.host)) > 0
	}},
	{"spaces before a tag are header, and so is a colon alone", func(_ []byte, theirs fields) bool {
		return theirs.tag == "" && (theirs.msg[0] == ' ' || theirs.msg[0] == ':')
	}},
	{"its tags hold no colon and no 8-bit byte, are short, and do not end a message", func(_ []byte, theirs fields) bool {
		return theirs.tag == "" && scanTag(&Header{}, []byte(theirs.msg))
	}},
	{"it loses or doubles a part of what begins like a tag", func(b []byte, theirs fields) bool {
		return !bytes.HasSuffix(b, []byte(joined(theirs)))
	}},
	{"its tags hold quotes and brackets, its pids spaces", func(_ []byte, theirs fields) bool {
		return span([]byte(theirs.tag), tagByte) < len(theirs.tag) || span([]byte(theirs.pid), pidByte) < len(theirs.pid)
	}},
}

// joined returns what follows the time of the message that the fields are of,
// if they are all of it.
func joined(f fields) string {
	s := f.host + " "
	if f.host == "" {
		s = "- "
	}
	if f.tag != "" {
		s += f.tag
		if f.pid != "" {
			s += "[" + f.pid + "]"
		}
		s += ": "
	}
	return s + f.msg
}

// FuzzScanDifferential holds Scan against another scanner wherever that takes
// a message and does not lose it.
func FuzzScanDifferential(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(checkDifferential)
}

func checkDifferential(t *testing.T, b []byte) {
	if m, err := rfc5424.NewParser().Parse(b); err == nil && m != nil {
		checkModern(t, b, m.(*rfc5424.SyslogMessage))
	} else if m, err := rfc3164.NewParser().Parse(b); err == nil && m != nil {
		checkBSD(t, b, m.(*rfc3164.SyslogMessage))
	}
}

func checkModern(t *testing.T, b []byte, m *rfc5424.SyslogMessage) {
	message := strings.TrimPrefix(text(m.Message), "\xef\xbb\xbf") // it keeps a BOM
	h, same := compare(t, b, fields{int(*m.Priority), text(m.Hostname), text(m.Appname),
		text(m.ProcID), text(m.MsgID), "", message}, deviations5424)
	if !same {
		return
	}
	at := h.Time(cameAt, time.UTC)
	if (m.Timestamp != nil) != h.HasTime() || m.Timestamp != nil && !m.Timestamp.Equal(at) {
		t.Fatalf("%q\n  ours %v\ntheirs %v", b, at, m.Timestamp)
	}
	var data elements
	if m.StructuredData != nil {
		data = *m.StructuredData
	}
	if got := h.StructuredData(); !maps.EqualFunc(got, data, maps.Equal) {
		t.Fatalf("%q\n  ours %v\ntheirs %v", b, got, data)
	}
}

func checkBSD(t *testing.T, b []byte, m *rfc3164.SyslogMessage) {
	h, same := compare(t, b, fields{int(*m.Priority), text(m.Hostname), text(m.Appname),
		text(m.ProcID), "", "", text(m.Message)}, deviations3164)
	if !same {
		return
	}
	_, month, day := m.Timestamp.Date()
	hour, minute, second := m.Timestamp.Clock()
	want := stamp{month: uint8(month), day: uint8(day), hour: uint8(hour),
		minute: uint8(minute), second: uint8(second), has: hasClock}
	if h.stamp != want {
		t.Fatalf("%q\n  ours %+v\ntheirs %+v", b, h.stamp, want)
	}
}

// compare scans b and checks that its words are theirs, unless a deviation
// explains it: then it reports false.
func compare(t *testing.T, b []byte, theirs fields, known []deviation) (*Header, bool) {
	t.Helper()
	var h Header
	Scan(&h, b, false)
	ours := fieldsOf(&h)
	ours.data = ""
	if ours == theirs {
		return &h, true
	}
	for _, d := range known {
		if d.is(b, theirs) {
			return &h, false
		}
	}
	t.Fatalf("%q\n  ours %+v\ntheirs %+v", b, ours, theirs)
	return nil, false
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
