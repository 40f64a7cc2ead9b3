package syslog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var eastOfUTC = time.Date(2026, 3, 15, 11, 20, 30, 123456789, time.FixedZone("", 60*60))

func TestAppendRFC5424(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct {
		f    Fields
		want string
	}{
		{Fields{Priority: 14, Time: eastOfUTC, Host: []byte("h1"), Tag: []byte("a b"), Message: []byte("x")}, // FW17
			"<14>1 2026-03-15T11:20:30.123456+01:00 h1 a_b - - - x"},
		{Fields{Time: cameAt}, "<0>1 2026-03-15T10:20:30.000000Z - - - - -"},
		{Fields{Priority: 191, Time: cameAt, PID: []byte("7"), MsgID: []byte("m"), Data: []byte("[a]")},
			"<191>1 2026-03-15T10:20:30.000000Z - - 7 m [a]"},
		{Fields{Priority: 99, Time: cameAt, Host: []byte(long), Tag: []byte(long), PID: []byte(long), MsgID: []byte(long)},
			"<99>1 2026-03-15T10:20:30.000000Z " + long[:255] + " " + long[:48] + " " + long[:128] + " " + long[:32] + " -"},
		{Fields{Time: cameAt, Host: []byte("caf\xc3\xa9\n\x7f"), Message: []byte(" \x00\xff\n")},
			"<0>1 2026-03-15T10:20:30.000000Z caf____ - - - -  \x00\xff\n"},
		{Fields{Time: cameAt.In(time.FixedZone("", -(9*60+30)*60))},
			"<0>1 2026-03-15T00:50:30.000000-09:30 - - - - -"},
		{Fields{Time: cameAt.In(time.FixedZone("", 19*60+32))}, // a local mean time
			"<0>1 2026-03-15T10:20:30.000000Z - - - - -"},
	}
	for _, tt := range tests {
		if got := string(AppendRFC5424([]byte("+"), &tt.f)); got != "+"+tt.want {
			t.Errorf("\n got %q\nwant %q", got[1:], tt.want)
		}
	}
}

func TestAppendRFC3164(t *testing.T) {
	tests := []struct {
		f    Fields
		want string
	}{
		{Fields{Priority: 13, Time: eastOfUTC, Host: []byte("h1"), Tag: []byte("app"), PID: []byte("7"), Message: []byte("x")},
			"<13>Mar 15 11:20:30 h1 app[7]: x"},
		{Fields{Time: eastOfUTC.AddDate(0, 0, -10), Host: []byte("h1"), Tag: []byte("app")}, "<0>Mar  5 11:20:30 h1 app: "},
		{Fields{Time: eastOfUTC, Tag: []byte("app"), Message: []byte("x")}, "<0>Mar 15 11:20:30 app: x"},
		{Fields{Time: eastOfUTC, Host: []byte("h1"), PID: []byte("7"), Message: []byte("x")}, "<0>Mar 15 11:20:30 h1 x"},
		{Fields{Time: eastOfUTC, Message: []byte("x")}, "<0>Mar 15 11:20:30 x"},
		{Fields{Time: eastOfUTC, Host: []byte("2001:db8::"), Message: []byte("x")}, "<0>Mar 15 11:20:30 2001:db8:: x"},
		// What the form cannot carry is made so that it can.
		{Fields{Time: eastOfUTC, Host: []byte("a b:c."), Message: []byte("x")}, "<0>Mar 15 11:20:30 a_b_c x"},
		{Fields{Time: eastOfUTC, Host: []byte(" . "), Message: []byte("x")}, "<0>Mar 15 11:20:30 x"},
		{Fields{Time: eastOfUTC, Host: []byte("h"), Tag: []byte("a [\n"), PID: []byte("1] x"), Message: []byte("x")},
			"<0>Mar 15 11:20:30 h a___[1__x]: x"},
	}
	for _, tt := range tests {
		if got := string(AppendRFC3164([]byte("+"), &tt.f)); got != "+"+tt.want {
			t.Errorf("\n got %q\nwant %q", got[1:], tt.want)
		}
	}
}

// drawFields draws what both forms can carry: the words that Scan makes, a time
// of whole microseconds, any bytes as the message.
func drawFields(t *rapid.T) (f Fields, zone *time.Location) {
	word := func(name, expr string) []byte {
		if s := rapid.StringMatching("|"+expr).Draw(t, name); s != "" {
			return []byte(s)
		}
		return nil
	}
	zone = time.FixedZone("", 15*60*rapid.IntRange(-48, 56).Draw(t, "quarters"))
	f = Fields{
		Priority: rapid.Uint8Range(0, 191).Draw(t, "priority"),
		Time:     time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")).In(zone),
		Host:     word("host", `[a-z][a-zA-Z0-9._-]{0,20}[a-z0-9]|[0-9a-f]{1,4}::[0-9a-f]{1,4}|10\.0\.0\.1`),
		Tag:      word("tag", `[a-zA-Z][!#-+./0-9a-zA-Z_-]{0,20}`),
		MsgID:    word("msgid", `[!-,.-~][!-~]{0,31}`),
		Data:     word("data", `(\[[a-z@0-9]{1,40}( [a-z]{1,9}="([a-z =]|\\["\\\]])*"){0,3}\]){1,2}`),
		Message:  rapid.SliceOf(rapid.Byte()).Draw(t, "message"),
	}
	if f.Tag != nil {
		f.PID = word("pid", `[!-,.-\\^-~][!-\\^-~]{0,20}`)
	}
	return f, zone
}

func TestRoundTripRFC5424(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, zone := drawFields(t)
		if bytes.HasPrefix(f.Message, []byte("\xef\xbb\xbf")) {
			t.Skip("a mark of byte order is no part of a message")
		}
		checkRoundTrip(t, &f, zone, AppendRFC5424(nil, &f), f.Time)
	})
}

func TestRoundTripRFC3164(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, zone := drawFields(t)
		f.MsgID, f.Data = nil, nil
		if f.Tag == nil {
			// Such a message could be read as a tag, or as a host.
			f.Message = append([]byte("\t"), f.Message...)
		}
		checkRoundTrip(t, &f, zone, AppendRFC3164(nil, &f), f.Time.Truncate(time.Second))
	})
}

// checkRoundTrip reports whether Scan reads from b what f is.
func checkRoundTrip(t *rapid.T, f *Fields, zone *time.Location, b []byte, at time.Time) {
	var h Header
	Scan(&h, b, false)
	want := fields{int(f.Priority), string(f.Host), string(f.Tag), string(f.PID),
		string(f.MsgID), string(f.Data), string(f.Message)}
	if got := fieldsOf(&h); got != want {
		t.Fatalf("%q\n got %+v\nwant %+v", b, got, want)
	}
	if got := h.Time(f.Time, zone); !got.Equal(at) {
		t.Fatalf("%q: time %v, want %v", b, got, at)
	}
}

func TestEscape(t *testing.T) {
	var all []byte // SE05
	for c := range 0x20 {
		all = append(all, byte(c))
	}
	all = append(all, "a\x7f\xc2\x9bz"...)
	tests := []struct{ in, line, control string }{
		{"", "", ""},
		{"plain #012 text", "plain #012 text", "plain #012 text"},
		{"a\r\n\x00b", "a#015#012#000b", "a#015#012#000b"},
		{"\n", "#012", "#012"},
		{"a\tb", "a\tb", "a\tb"},
		{"\x1b[31m", "\x1b[31m", "#033[31m"},
		{"\xc2\x80\xc2\x9f\xc2\xa0", "\xc2\x80\xc2\x9f\xc2\xa0", "#302#200#302#237\xc2\xa0"},
		{"\xc2", "\xc2", "\xc2"},
		{"\x9b\xff\xc3\x9b", "\x9b\xff\xc3\x9b", "\x9b\xff\xc3\x9b"},
		{string(all), "#000\x01\x02\x03\x04\x05\x06\x07\x08\t#012\x0b\x0c#015" + string(all[0x0e:]),
			"#000#001#002#003#004#005#006#007#010\t#012#013#014#015#016#017#020#021#022#023" +
				"#024#025#026#027#030#031#032#033#034#035#036#037a#177#302#233z"},
	}
	for _, tt := range tests {
		in := []byte(tt.in)
		if got := string(AppendEscapedLine([]byte("+"), in)); got != "+"+tt.line {
			t.Errorf("line %q: got %q, want %q", tt.in, got[1:], tt.line)
		}
		if NeedsLineEscape(in) != (tt.line != tt.in) {
			t.Errorf("NeedsLineEscape(%q) = %v", tt.in, NeedsLineEscape(in))
		}
		if got := string(AppendEscapedControl([]byte("+"), in)); got != "+"+tt.control {
			t.Errorf("control %q: got %q, want %q", tt.in, got[1:], tt.control)
		}
		if NeedsControlEscape(in) != (tt.control != tt.in) {
			t.Errorf("NeedsControlEscape(%q) = %v", tt.in, NeedsControlEscape(in))
		}
	}
}

func TestEncodeAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	f := Fields{Priority: 14, Time: eastOfUTC, Host: []byte("h_"), Tag: []byte("a b"), PID: []byte("1"),
		MsgID: []byte("m"), Data: []byte("[a]"), Message: []byte("a\n\x1b\xc2\x9b")}
	buf := make([]byte, 0, 1024)
	for name, encode := range map[string]func(){
		"AppendRFC5424":        func() { AppendRFC5424(buf, &f) },
		"AppendRFC3164":        func() { AppendRFC3164(buf, &f) },
		"AppendEscapedLine":    func() { AppendEscapedLine(buf, f.Message) },
		"AppendEscapedControl": func() { AppendEscapedControl(buf, f.Message) },
		"AppendValue":          func() { AppendValue(buf, f.Message) },
	} {
		if n := testing.AllocsPerRun(100, encode); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	var h Header
	Scan(&h, []byte(nginxLine), false)
	f := Fields{Priority: h.Priority, Time: eastOfUTC, Host: h.Host, Tag: h.Tag, Message: h.Message}
	buf := make([]byte, 0, 1024)
	for name, encode := range map[string]func([]byte, *Fields) []byte{
		"rfc5424": AppendRFC5424, "rfc3164": AppendRFC3164,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encode(buf, &f)
			}
		})
	}
}
