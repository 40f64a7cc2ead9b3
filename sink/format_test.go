package sink

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"logboom/buffer"
	"logboom/syslog"
)

var received = time.Date(2026, 3, 15, 10, 20, 31, 250e6, time.UTC)

// scanned is a message as a listener hands it out.
func scanned(datagram string) syslog.Message {
	m := syslog.Message{Received: received, Peer: "192.0.2.10"}
	syslog.Scan(&m.Header, []byte(datagram), false)
	return m
}

// encoded is a record with its line feed.
func encoded(e *encoder, m *syslog.Message, o *Origin) string {
	record, newline := e.encode(m, o)
	if newline {
		return string(record) + "\n"
	}
	return string(record)
}

func mustTemplate(t testing.TB, text string) *Template {
	t.Helper()
	tmpl, err := ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

const (
	bsd      = "<190>Mar 15 10:20:30 web1 nginx[7]: GET /a\tb"
	nohost   = "<190>Mar 15 10:20:30 nginx: GET /"
	modern   = `<165>1 2026-03-15T10:20:30.123456+01:00 h app 12 ID47 [a@1 x="1\"" y="2"][b] text`
	multi    = "<13>Mar 15 10:20:30 h t: a\nb\rc\x00d"
	controls = "<13>Mar 15 10:20:30 h t: \x1b[0m\t\x7f\u009b0m"
)

func TestEncode(t *testing.T) {
	tmpl := mustTemplate(t, "$host|$program|$message")
	for _, tt := range []struct {
		name, datagram string
		enc            encoder
		want           string
	}{
		{"raw", bsd, encoder{format: Raw}, "GET /a\tb\n"},
		{"raw, empty", "<13>Mar 15 10:20:30 h t: ", encoder{format: Raw}, "\n"},
		{"raw, lines in it", multi, encoder{format: Raw}, "a#012b#015c#000d\n"},
		{"raw, none escaped", multi, encoder{format: Raw, escape: EscapeNone}, "a\nb\rc\x00d\n"},
		{"raw, controls", controls, encoder{format: Raw, escape: EscapeControl}, "#033[0m\t#177#302#2330m\n"},
		{"raw, controls kept", controls, encoder{format: Raw}, "\x1b[0m\t\x7f\u009b0m\n"},
		{"raw, counted", bsd, encoder{format: Raw, framing: Octets}, "8 GET /a\tb"},
		{"raw, counted, as it is", multi, encoder{format: Raw, framing: Octets, escape: EscapeNone}, "7 a\nb\rc\x00d"},
		{"raw, counted, escaped", multi, encoder{format: Raw, framing: Octets}, "16 a#012b#015c#000d"},
		{"rfc3164", bsd, encoder{format: RFC3164}, "<190>Mar 15 10:20:30 web1 nginx[7]: GET /a\tb\n"},
		{"rfc3164, the peer's host", nohost, encoder{format: RFC3164}, "<190>Mar 15 10:20:30 192.0.2.10 nginx: GET /\n"},
		{"rfc3164, escaped, counted", multi, encoder{format: RFC3164, framing: Octets}, "41 <13>Mar 15 10:20:30 h t: a#012b#015c#000d"},
		{"rfc5424", modern, encoder{format: RFC5424}, modern + "\n"},
		{"rfc5424 from rfc3164", nohost, encoder{format: RFC5424}, "<190>1 2026-03-15T10:20:30.000000Z 192.0.2.10 nginx - - - GET /\n"},
		{"rfc5424, a line in its data", "<13>1 - h a - - [x y=\"1\n2\"] m\nn", encoder{format: RFC5424}, "<13>1 2026-03-15T10:20:31.250000Z h a - - [x y=\"1#0122\"] m#012n\n"},
		{"template", bsd, encoder{format: Templated, template: tmpl}, "web1|nginx|GET /a\tb\n"},
		{"template, escaped", multi, encoder{format: Templated, template: tmpl}, "h|t|a#012b#015c#000d\n"},
		{"template, escaped, counted", multi, encoder{format: Templated, template: tmpl, framing: Octets}, "20 h|t|a#012b#015c#000d"},
	} {
		m := scanned(tt.datagram)
		for range 2 { // the scratch memory of the first must not show in the second
			if got := encoded(&tt.enc, &m, &Origin{Source: "s"}); got != tt.want {
				t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
			}
		}
	}
}

// SE05: nothing that a terminal acts on is left.
func TestEscapeAllControls(t *testing.T) {
	var text []byte
	for c := range byte(0x20) {
		text = append(text, c)
	}
	text = append(text, 0x7f, 0xc2, 0x9b)
	e := encoder{format: Raw, escape: EscapeControl}
	m := syslog.Message{}
	m.Message = text
	got := strings.TrimSuffix(encoded(&e, &m, new(Origin)), "\n")
	if want := 31*len("#000") + len("\t#177#302#233"); len(got) != want {
		t.Errorf("%d bytes, want %d: %q", len(got), want, got)
	}
	for _, r := range got {
		if r < ' ' && r != '\t' || r >= 0x7f {
			t.Errorf("%q is left", r)
		}
	}
}

func TestJSONRecord(t *testing.T) {
	zone := time.FixedZone("", 3600)
	for _, tt := range []struct {
		name string
		m    syslog.Message
		o    Origin
		want string
	}{
		{"every key", func() syslog.Message {
			m := scanned(modern)
			m.Truncated, m.Partial = true, true
			return m
		}(), Origin{Source: "app", Stream: "stderr"},
			`{"time":"2026-03-15T10:20:30.123456+01:00","received":"2026-03-15T10:20:31.25Z","host":"h","program":"app",` +
				`"pid":"12","msgid":"ID47","facility":"local4","severity":"notice","data":{"a@1":{"x":"1\"","y":"2"},"b":{}},` +
				`"source":"app","peer":"192.0.2.10","stream":"stderr","truncated":true,"partial":true,"message":"text"}` + "\n"},
		{"no more than there is", syslog.Message{Received: received}, Origin{},
			`{"time":"2026-03-15T10:20:31.25Z","received":"2026-03-15T10:20:31.25Z","facility":"kern","severity":"emerg","message":""}` + "\n"},
		{"zone and host of the source", scanned("<13>Mar 15 10:20:30 t: x"), Origin{Zone: zone, LocalHost: "here"},
			`{"time":"2026-03-15T10:20:30+01:00","received":"2026-03-15T10:20:31.25Z","host":"192.0.2.10","program":"t",` +
				`"facility":"user","severity":"notice","peer":"192.0.2.10","message":"x"}` + "\n"},
		{"bytes that are no text", scanned("<13>Mar 15 10:20:30 h t: a\xff\u2028\u0085\x00\"\\\n\x7f\xed\xa0\x80z"), Origin{},
			`{"time":"2026-03-15T10:20:30Z","received":"2026-03-15T10:20:31.25Z","host":"h","program":"t",` +
				`"facility":"user","severity":"notice","peer":"192.0.2.10","message":"a\ufffd\u2028\u0085\u0000\"\\\n\u007f\ufffd\ufffd\ufffdz",` +
				`"message_base64":"Yf/igKjChQAiXAp/7aCAeg=="}` + "\n"},
	} {
		for _, escape := range []Escape{EscapeLine, EscapeNone, EscapeControl} {
			e := encoder{format: JSON, escape: escape}
			if got := encoded(&e, &tt.m, &tt.o); got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
			}
		}
	}
}

// A record is one line, valid, and holds every byte of the message.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{bsd, nohost, modern, multi, controls, "<13>1 - - - - - [a b=\"\xff\x00\"] \ufffd\u2029"} {
		f.Add([]byte(s), "peer", "source")
	}
	f.Fuzz(func(t *testing.T, datagram []byte, peer, source string) {
		m := scanned(string(datagram))
		m.Peer = peer
		e := encoder{format: JSON}
		line := encoded(&e, &m, &Origin{Source: source})
		if strings.IndexAny(line, "\n\r\u2028\u2029") != len(line)-1 || !utf8.ValidString(line) {
			t.Fatalf("not one line of text: %q", line)
		}
		var record struct {
			Host, Program, Source, Peer, Message string
			Time, Received                       time.Time
			Base64                               string `json:"message_base64"`
			Data                                 map[string]map[string]string
		}
		decoder := json.NewDecoder(strings.NewReader(line))
		if err := decoder.Decode(&record); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		text := record.Message
		if !utf8.Valid(m.Message) {
			exact, err := base64.StdEncoding.DecodeString(record.Base64)
			if err != nil {
				t.Fatal(err)
			}
			text = string(exact)
			if want := strings.ToValidUTF8(string(m.Message), ""); strings.ReplaceAll(record.Message, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
				t.Errorf("message %q, want %q", record.Message, want)
			}
		} else if record.Base64 != "" {
			t.Error("base64 of what is text")
		}
		if text != string(m.Message) {
			t.Errorf("message %q, want %q", text, m.Message)
		}
		if len(record.Data) != len(m.StructuredData()) {
			t.Errorf("data %v, want %v", record.Data, m.StructuredData())
		}
		if utf8.ValidString(source) && record.Source != source {
			t.Errorf("source %q, want %q", record.Source, source)
		}
	})
}

// A notice looks like the sink's other lines, and comes before its message.
func TestNotice(t *testing.T) {
	gap := buffer.Gap{Messages: 120, Reason: MemoryFull}
	o := Origin{Source: "nginx", Stream: "stdout", LocalHost: "here"}
	tmpl := mustTemplate(t, "$host $message")
	const text = "logboom: 120 messages dropped: memory full"
	for _, tt := range []struct {
		name string
		enc  encoder
		want string
	}{
		{"raw", encoder{format: Raw}, text + "\nm\n"},
		{"template", encoder{format: Templated, template: tmpl}, text + "\nh m\n"},
		{"rfc3164", encoder{format: RFC3164}, "<44>Mar 15 10:20:31 here " + text + "\n<13>Mar 15 10:20:31 h t: m\n"},
		{"rfc3164, counted", encoder{format: RFC3164, framing: Octets}, "67 <44>Mar 15 10:20:31 here " + text + "26 <13>Mar 15 10:20:31 h t: m"},
		{"rfc5424", encoder{format: RFC5424}, "<44>1 2026-03-15T10:20:31.250000Z here logboom - - - 120 messages dropped: memory full\n" +
			"<13>1 2026-03-15T10:20:31.250000Z h t - - - m\n"},
		{"json", encoder{format: JSON}, `{"time":"2026-03-15T10:20:31.25Z","received":"2026-03-15T10:20:31.25Z","host":"here","program":"logboom",` +
			`"facility":"syslog","severity":"warning","source":"nginx","message":"120 messages dropped: memory full"}` + "\n" +
			`{"time":"2026-03-15T10:20:31.25Z","received":"2026-03-15T10:20:31.25Z","host":"h","program":"t",` +
			`"facility":"user","severity":"notice","source":"nginx","stream":"stdout","message":"m"}` + "\n"},
	} {
		m := scanned("<13>1 - h t - - - m")
		m.Peer = ""
		before := tt.enc.format
		got, newline := tt.enc.encodeWithNotice(gap, &m, &o)
		if newline {
			got = append(got, '\n')
		}
		if string(got) != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
		if tt.enc.format != before {
			t.Errorf("%s: the format is %s now", tt.name, tt.enc.format)
		}
	}
}

func TestMatch(t *testing.T) {
	m := scanned(bsd) // local7.info, nginx
	for _, tt := range []struct {
		match Match
		set   bool
		want  bool
	}{
		{Match{}, false, true},
		{Match{Severities: 1 << 6}, true, true},
		{Match{Severities: 0x3f}, true, false},
		{Match{Programs: []string{"php", "nginx"}}, true, true},
		{Match{Programs: []string{"ngin"}}, true, false},
		{Match{Message: regexp.MustCompile(`^GET /`)}, true, true},
		{Match{Message: regexp.MustCompile(`POST`)}, true, false},
		{Match{Severities: 1 << 6, Programs: []string{"php"}}, true, false},
	} {
		if got := tt.match.takes(&m); got != tt.want || tt.match.isSet() != tt.set {
			t.Errorf("%+v takes it: %v; is set: %v", tt.match, got, tt.match.isSet())
		}
	}
}
