package syslog

import (
	"net/netip"
	"testing"
	"time"
	_ "time/tzdata"
)

// When a sample came, unless it says otherwise.
var cameAt = time.Date(2026, 3, 15, 10, 20, 30, 0, time.UTC)

const (
	nginxLine   = `<190>Nov 30 10:32:59 vm nginx: 127.0.0.1 - - [30/Nov/2026:10:32:59 +0000] "GET /missing HTTP/1.1" 404 153 "-" "curl/8"`
	rfc5424Line = `<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3" eventSource="Application"] An application event log entry`
)

// fields is a scanned header as text; "" is absent.
type fields struct {
	priority                         int
	host, tag, pid, msgID, data, msg string
}

func scanFields(in string, local bool) fields {
	var h Header
	Scan(&h, []byte(in), local)
	return fieldsOf(&h)
}

func fieldsOf(h *Header) fields {
	return fields{int(h.Priority), string(h.Host), string(h.Tag), string(h.PID),
		string(h.MsgID), string(h.Data), string(h.Message)}
}

// Headers of real senders that others have misread. Where time is "", the
// header names none.
func TestScanHeaders(t *testing.T) {
	const second = "2026-03-15T10:20:30Z"
	tests := []struct {
		id    string // of the case
		in    string
		local bool
		time  string
		want  fields
	}{
		{"P02", `<190>Mar 15 10:20:30 nginx: {"status":200,"uri":"/a b"}`, false, second,
			fields{priority: 190, tag: "nginx", msg: `{"status":200,"uri":"/a b"}`}},
		{"P03", `<190>Mar 15 10:20:30 node01-edge www_example_com: {"@timestamp":"x"}`, true, second,
			fields{priority: 190, host: "node01-edge", tag: "www_example_com", msg: `{"@timestamp":"x"}`}},
		{"P07", "Use the BFG!", false, "", fields{priority: 13, msg: "Use the BFG!"}},
		{"P09", "<192>Mar 15 10:20:30 host app[1]: x", false, "",
			fields{priority: 13, msg: "<192>Mar 15 10:20:30 host app[1]: x"}},
		{"P11", "<-1>Mar 15 10:20:30 host kernel: x", false, "",
			fields{priority: 13, msg: "<-1>Mar 15 10:20:30 host kernel: x"}},
		{"P15", "<189>83: *Mar 15 10:20:30.663: %SYS-5-CONFIG_I: Configured from console", false, "",
			fields{priority: 189, msg: "83: *Mar 15 10:20:30.663: %SYS-5-CONFIG_I: Configured from console"}},
		{"P16", "<180>782431: sw1: .Mar 15 10:20:30.631 GMT: %CDP-4-X: mismatch", false, "",
			fields{priority: 180, msg: "782431: sw1: .Mar 15 10:20:30.631 GMT: %CDP-4-X: mismatch"}},
		{"P28", `<165>1 2026-03-15T10:20:30.003Z host1 evntslog - ID47 [a@1 iut="3"][b@1 class="high"] hello world`,
			false, "2026-03-15T10:20:30.003Z",
			fields{165, "host1", "evntslog", "", "ID47", `[a@1 iut="3"][b@1 class="high"]`, "hello world"}},
		{"P29", `<14>1 2026-03-15T10:20:30Z nas01 WinFile - - [x@1 a="q\"b" b="c\\d" c="e\]f"] done`, false, second,
			fields{14, "nas01", "WinFile", "", "", `[x@1 a="q\"b" b="c\\d" c="e\]f"]`, "done"}},
		{"P30", `<14>1 2026-03-15T10:20:30Z nas01 WinFile - - [x@1 path="C:\new\dir"] done`, false, second,
			fields{14, "nas01", "WinFile", "", "", `[x@1 path="C:\new\dir"]`, "done"}},
		{"P32", `<14>1 2026-03-15T10:20:30Z h1 web 9 - [tags@1 app_name="name with " quote"] body`, false, second,
			fields{priority: 14, host: "h1", tag: "web", pid: "9", msg: `[tags@1 app_name="name with " quote"] body`}},
		{"P33", "<14>1 2026-03-15T10:20:30.391+00:00 2001:db8:247e:5804:29e3:: stdout - - - hello",
			false, "2026-03-15T10:20:30.391Z",
			fields{priority: 14, host: "2001:db8:247e:5804:29e3::", tag: "stdout", msg: "hello"}},
		{"P35", "<30>Mar 15 10:20:30 2001:db8:: named[1]: x", false, second,
			fields{priority: 30, host: "2001:db8::", tag: "named", pid: "1", msg: "x"}},
		{"P36", "<14>1 2026-03-15T10:20:30Z h1 stack_chronograf_with_a_long_name.1.3v8p4fjev0jluhhxxcjyki90y - - - up",
			false, second, fields{priority: 14, host: "h1",
				tag: "stack_chronograf_with_a_long_name.1.3v8p4fjev0jluhhxxcjyki90y", msg: "up"}},
		{"P37", "<14>1 2026-03-15T10:20:30.088609123Z 198.51.100.4 qsys - - - Control failed",
			false, "2026-03-15T10:20:30.088609123Z",
			fields{priority: 14, host: "198.51.100.4", tag: "qsys", msg: "Control failed"}},
		{"P41", "<13>Mar 15 10:20:30 h1 app: hello\r\n", false, second,
			fields{priority: 13, host: "h1", tag: "app", msg: "hello"}},
		{"P42", "<13>Mar 15 10:20:30 h1 app: ok\n<11>Mar 15 10:20:30 h1 sshd[1]: Accepted", false, second,
			fields{priority: 13, host: "h1", tag: "app", msg: "ok\n<11>Mar 15 10:20:30 h1 sshd[1]: Accepted"}},
		{"P47", "<13>", false, "", fields{priority: 13}},
		{"P48", "<34>5 2026-03-15T10:20:30Z ddd text", false, "",
			fields{priority: 34, msg: "5 2026-03-15T10:20:30Z ddd text"}},
		{"P50", "<34>Mar 15 10:20:30 h1 apache: [error] [client 203.0.113.9] File", false, second,
			fields{priority: 34, host: "h1", tag: "apache", msg: "[error] [client 203.0.113.9] File"}},
		{"P52", "<166>2026-03-15T10:20:30.936Z esx01.example.net Hostd: verbose hostd[79A7B80] x",
			false, "2026-03-15T10:20:30.936Z",
			fields{priority: 166, host: "esx01.example.net", tag: "Hostd", msg: "verbose hostd[79A7B80] x"}},
		{"P53", "<77>Mar 15 10:20:30 h1 run-parts(/etc/cron.daily)[25833]: finished prelink", false, second,
			fields{priority: 77, host: "h1", tag: "run-parts(/etc/cron.daily)", pid: "25833", msg: "finished prelink"}},
		{"P54", "<22>Mar 15 10:20:30 mx1 postfix/smtpd[2211]: connect from unknown[198.51.100.7]", false, second,
			fields{priority: 22, host: "mx1", tag: "postfix/smtpd", pid: "2211",
				msg: "connect from unknown[198.51.100.7]"}},
		{"P56", `<134>Mar 15 10:20:30 opsaudit {"username": "admin"}`, false, second,
			fields{priority: 134, host: "opsaudit", msg: `{"username": "admin"}`}},
		{"P57", `<134>Mar 15 10:20:30 opsaudit  {"username": "admin"}`, false, second,
			fields{priority: 134, host: "opsaudit", msg: ` {"username": "admin"}`}},
		{"P58", `<131>1 2026-03-15T10:20:30.906539+02:00 lb.example appname 1234 01230456:1: [F5@1 h="lb"] RST sent`,
			false, "2026-03-15T10:20:30.906539+02:00",
			fields{131, "lb.example", "appname", "1234", "01230456:1:", `[F5@1 h="lb"]`, "RST sent"}},
		{"P60", "<134>Mar 15 10:20:30 haproxy[17]: 198.51.100.90:41340 [15/Mar/2026] fe be/s1 200\n", true, second,
			fields{priority: 134, tag: "haproxy", pid: "17", msg: "198.51.100.90:41340 [15/Mar/2026] fe be/s1 200"}},
		{"P62", "<30>1 2026-03-15T10:20:30Z my.example testapp 26599 testapp - This: contains two : colons", false, second,
			fields{30, "my.example", "testapp", "26599", "testapp", "", "This: contains two : colons"}},
		{"P64", "<0>1990 Oct 22 10:52:01 TZ-6 scapegoat.dmz.example.org 10.1.2.3 sched[0]: x", false, "",
			fields{priority: 0, msg: "1990 Oct 22 10:52:01 TZ-6 scapegoat.dmz.example.org 10.1.2.3 sched[0]: x"}},
	}
	for _, tt := range tests {
		t.Run(tt.id, func(t *testing.T) {
			var h Header
			Scan(&h, TrimDatagram([]byte(tt.in)), tt.local)
			if got := fieldsOf(&h); got != tt.want {
				t.Errorf("Scan(%q)\n got %+v\nwant %+v", tt.in, got, tt.want)
			}
			if h.HasTime() != (tt.time != "") {
				t.Fatalf("HasTime() = %v", h.HasTime())
			}
			want := tt.time
			if want == "" {
				want = second
			}
			if got := h.Time(cameAt, time.UTC).Format(time.RFC3339Nano); got != want {
				t.Errorf("Time() = %s, want %s", got, want)
			}
		})
	}
}

func TestScanPriority(t *testing.T) {
	tests := []struct {
		in       string
		priority int
		msg      string
	}{
		{"", 13, ""},
		{"<", 13, "<"},
		{"<>", 13, "<>"},
		{"<1", 13, "<1"},
		{"<0>x", 0, "x"},
		{"<00>x", 13, "<00>x"},
		{"<07>x", 13, "<07>x"},
		{"<191>x", 191, "x"},
		{"<256>x", 13, "<256>x"},
		{"<1000>x", 13, "<1000>x"},
		{"< 1>x", 13, "< 1>x"},
		{"<1 >x", 13, "<1 >x"},
		{" <1>x", 13, " <1>x"},
	}
	for _, tt := range tests {
		want := fields{priority: tt.priority, msg: tt.msg}
		if got := scanFields(tt.in, false); got != want {
			t.Errorf("Scan(%q) = %+v, want %+v", tt.in, got, want)
		}
	}
}

// What follows the time of a BSD header, over a network and over a unix socket.
func TestScanOrigin(t *testing.T) {
	const head = "<13>Mar 15 10:20:30"
	tests := []struct {
		in     string
		remote fields // without the priority
		local  fields
	}{
		{"", fields{}, fields{}},
		{" ", fields{}, fields{}},
		{" h1", fields{host: "h1"}, fields{msg: "h1"}},
		{" h1 ", fields{host: "h1"}, fields{msg: "h1 "}},
		{" h1 hello", fields{host: "h1", msg: "hello"}, fields{msg: "h1 hello"}},
		{" app: x", fields{tag: "app", msg: "x"}, fields{tag: "app", msg: "x"}},
		{" app:", fields{tag: "app"}, fields{tag: "app"}},
		{" app: ", fields{tag: "app"}, fields{tag: "app"}},
		{" app:  x", fields{tag: "app", msg: " x"}, fields{tag: "app", msg: " x"}},
		{" app:\tx", fields{msg: "app:\tx"}, fields{msg: "app:\tx"}},
		{" app:x", fields{msg: "app:x"}, fields{msg: "app:x"}},
		{" h1 app:x", fields{host: "h1", msg: "app:x"}, fields{msg: "h1 app:x"}},
		// Any number of spaces before a tag.
		{"  app: x", fields{tag: "app", msg: "x"}, fields{tag: "app", msg: "x"}},
		{" h1   app: x", fields{host: "h1", tag: "app", msg: "x"}, fields{host: "h1", tag: "app", msg: "x"}},
		{"  h1 app: x", fields{host: "h1", tag: "app", msg: "x"}, fields{host: "h1", tag: "app", msg: "x"}},
		{"  hello [x] y", fields{msg: " hello [x] y"}, fields{msg: " hello [x] y"}},
		// A colon alone.
		{" h1 : x", fields{host: "h1", msg: "x"}, fields{msg: "h1 : x"}},
		{" h1 :", fields{host: "h1"}, fields{msg: "h1 :"}},
		{" h1 :x", fields{host: "h1", msg: ":x"}, fields{msg: "h1 :x"}},
		{" : x", fields{msg: ": x"}, fields{msg: ": x"}},
		// No host by its own words.
		{" - app: x", fields{tag: "app", msg: "x"}, fields{tag: "app", msg: "x"}},
		{" - hello", fields{msg: "hello"}, fields{msg: "- hello"}},
		// Hosts, and words that are none.
		{" h-1_a.b x", fields{host: "h-1_a.b", msg: "x"}, fields{msg: "h-1_a.b x"}},
		{" h1. app: x", fields{msg: "h1. app: x"}, fields{msg: "h1. app: x"}},
		{" #001 MSWin", fields{msg: "#001 MSWin"}, fields{msg: "#001 MSWin"}},
		{" caf\xc3\xa9 app: x", fields{msg: "caf\xc3\xa9 app: x"}, fields{msg: "caf\xc3\xa9 app: x"}},
		{" fe80::1%eth0 app: x", fields{host: "fe80::1%eth0", tag: "app", msg: "x"},
			fields{host: "fe80::1%eth0", tag: "app", msg: "x"}},
		{" ::ffff:192.0.2.1 x", fields{host: "::ffff:192.0.2.1", msg: "x"}, fields{msg: "::ffff:192.0.2.1 x"}},
		{" cafe:: x", fields{host: "cafe::", msg: "x"}, fields{tag: "cafe:", msg: "x"}},
		{" caff: x", fields{tag: "caff", msg: "x"}, fields{tag: "caff", msg: "x"}},
		// Tags, and words that are none.
		{" h1 a:b: x", fields{host: "h1", tag: "a:b", msg: "x"}, fields{host: "h1", tag: "a:b", msg: "x"}},
		{" a[]: x", fields{tag: "a", msg: "x"}, fields{tag: "a", msg: "x"}},
		{" a[1[2]: x", fields{tag: "a", pid: "1[2", msg: "x"}, fields{tag: "a", pid: "1[2", msg: "x"}},
		{" a[1 2]: x", fields{msg: "a[1 2]: x"}, fields{msg: "a[1 2]: x"}},
		{" a[1]", fields{msg: "a[1]"}, fields{msg: "a[1]"}},
		{" a[1] x", fields{msg: "a[1] x"}, fields{msg: "a[1] x"}},
		{" a[1]b: x", fields{msg: "a[1]b: x"}, fields{msg: "a[1]b: x"}},
		{" a[1", fields{msg: "a[1"}, fields{msg: "a[1"}},
		{" [1]: x", fields{msg: "[1]: x"}, fields{msg: "[1]: x"}},
		{" h1 a=b: x", fields{host: "h1", msg: "a=b: x"}, fields{msg: "h1 a=b: x"}},
		{" h1 a\nb: x", fields{host: "h1", msg: "a\nb: x"}, fields{msg: "h1 a\nb: x"}},
		{" a[1\n]: x", fields{msg: "a[1\n]: x"}, fields{msg: "a[1\n]: x"}},
		// Bytes of the message are kept as they are.
		{" h1 app: \t\x00\xff\x01", fields{host: "h1", tag: "app", msg: "\t\x00\xff\x01"},
			fields{host: "h1", tag: "app", msg: "\t\x00\xff\x01"}},
	}
	for _, tt := range tests {
		for _, local := range []bool{false, true} {
			want := tt.remote
			if local {
				want = tt.local
			}
			want.priority = 13
			if got := scanFields(head+tt.in, local); got != want {
				t.Errorf("Scan(%q, %v)\n got %+v\nwant %+v", head+tt.in, local, got, want)
			}
		}
	}
}

func TestScanRFC5424(t *testing.T) {
	const head = "<13>1 - h a p m"
	tests := []struct {
		in   string
		want fields // without the priority
	}{
		{head, fields{host: "h", tag: "a", pid: "p", msgID: "m"}},
		{head + " ", fields{host: "h", tag: "a", pid: "p", msgID: "m"}},
		{head + " -", fields{host: "h", tag: "a", pid: "p", msgID: "m"}},
		{head + " - ", fields{host: "h", tag: "a", pid: "p", msgID: "m"}},
		{head + " -  x", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: " x"}},
		{head + " x y", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: "x y"}},
		{head + " -x y", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: "-x y"}},
		{head + " [a]", fields{host: "h", tag: "a", pid: "p", msgID: "m", data: "[a]"}},
		{head + " [a] [b] x", fields{host: "h", tag: "a", pid: "p", msgID: "m", data: "[a]", msg: "[b] x"}},
		{head + " [a]x", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: "[a]x"}},
		{head + " [a][b x", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: "[a][b x"}},
		{head + " - \xef\xbb\xbfx", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: "x"}},
		{head + " - \xef\xbb\xbf\xef\xbb\xbfx", fields{host: "h", tag: "a", pid: "p", msgID: "m", msg: "\xef\xbb\xbfx"}},
		{"<13>1 - - - - - - x", fields{msg: "x"}},
		{"<13>1 - caf\xc3\xa9 a - - - x", fields{host: "caf\xc3\xa9", tag: "a", msg: "x"}},
		// No RFC 5424 header: the rest is the message.
		{"<13>1", fields{msg: "1"}},
		{"<13>1 - h a p", fields{msg: "1 - h a p"}},
		{"<13>1 - h a p ", fields{msg: "1 - h a p "}},
		{"<13>1 -  h a p m", fields{msg: "1 -  h a p m"}},
		{"<13>1 -h a p m x", fields{msg: "1 -h a p m x"}},
		{"<13>1 - h a p m\nx", fields{msg: "1 - h a p m\nx"}},
		{"<13>1 - h a\tb p m - x", fields{msg: "1 - h a\tb p m - x"}},
		{"<13>1 2026-02-29T10:20:30Z h a p m - x", fields{msg: "1 2026-02-29T10:20:30Z h a p m - x"}},
		{"<13>1 2026-03-15 10:20:30 a p m - x", fields{msg: "1 2026-03-15 10:20:30 a p m - x"}},
		{"<13>1 Mar 15 10:20:30 h a: x", fields{msg: "1 Mar 15 10:20:30 h a: x"}},
		{"<13>11 - h a p m - x", fields{msg: "11 - h a p m - x"}},
	}
	for _, tt := range tests {
		tt.want.priority = 13
		var h Header
		Scan(&h, []byte(tt.in), false)
		if got := fieldsOf(&h); got != tt.want {
			t.Errorf("Scan(%q)\n got %+v\nwant %+v", tt.in, got, tt.want)
		}
		if want := tt.in != "<13>"+tt.want.msg; h.RFC5424 != want {
			t.Errorf("Scan(%q): RFC5424 = %v", tt.in, h.RFC5424)
		}
	}
}

func TestTrimDatagram(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"x", "x"},
		{"x\n", "x"},
		{"x\r\n", "x"},
		{"x\r", "x\r"},
		{"x\n\n", "x\n"},
		{"x\x00", "x"},
		{"x\x00\x00", "x\x00"},
		{"x\n\x00", "x"},
		{"x\r\n\x00", "x"},
		{"x\x00\n", "x\x00"},
		{"\n", ""},
		{"x \t", "x \t"},
	}
	for _, tt := range tests {
		if got := string(TrimDatagram([]byte(tt.in))); got != tt.want {
			t.Errorf("TrimDatagram(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// The standard library is the judge of what an IPv6 address is.
func TestIsIPv6(t *testing.T) {
	words := []string{
		"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9",
		"1::8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4::5:6:7:8", "1::2::3",
		":1", "1:", ":", ":::", "1:::2", "12345::", "g::", "::g", "1:2:3:4:5:6:1.2.3.4",
		"::1.2.3.4", "::1.2.3", "::1.2.3.4.5", "::1.2.3.256", "::01.2.3.4", "::1.2.3.4:5",
		"1:2:3:4:5:6:7:1.2.3.4", "fe80::1%eth0", "fe80::1%", "%eth0", "::%a%b", "::ffff:c000:280",
		"", "a", "abcd", "dead:beef", "DEAD::BEEF", "::1 ", "1.2.3.4", "::00001",
	}
	for _, w := range words {
		a, err := netip.ParseAddr(w)
		if want := err == nil && a.Is6(); isIPv6([]byte(w)) != want {
			t.Errorf("isIPv6(%q) = %v", w, !want)
		}
	}
}

func TestScanAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var h Header
	for _, line := range []string{
		nginxLine, rfc5424Line,
		"<13>Mar 15 10:20:30 2001:db8:: named[1]: x",
		"<13>1 2026-03-15T10:20:30.123456789+05:30 h a p m [broken x",
		"no header at all",
	} {
		b := []byte(line)
		if n := testing.AllocsPerRun(100, func() { Scan(&h, TrimDatagram(b), false) }); n != 0 {
			t.Errorf("Scan(%q): %v allocations", line, n)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	for _, bb := range []struct{ name, line string }{
		{"nginx", nginxLine},
		{"rfc5424", rfc5424Line},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var h Header
			line := []byte(bb.line)
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				Scan(&h, line, false)
			}
		})
	}
}
