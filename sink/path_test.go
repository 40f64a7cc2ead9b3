package sink

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/syslog"
)

func mustPath(t testing.TB, text string) *Path {
	t.Helper()
	p, err := ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rendered is the path of a message with these names.
func rendered(p *Path, host, program string) string {
	m := syslog.Message{Received: received}
	m.Host, m.Tag = []byte(host), []byte(program)
	return renderedAt(p, &m, received)
}

// SE01: what a sender says never leads out of the prefix.
func TestSafeValues(t *testing.T) {
	p := mustPath(t, "/var/log/app/$host/$program.log.gz")
	for _, tt := range []struct{ host, program, want string }{
		{"../../etc/cron.d", "p", "___.._etc_cron.d/p"},
		{"..", ".", "__/_"},
		{".", "..", "_/__"},
		{"/etc", "a", "_etc/a"},
		{"a/../../b", "a", "a_.._.._b/a"},
		{"h", "x\x00y", "h/x_y"},
		{"", "", "_/_"},
		{"...a", "\x1f\x7f.", "___a/__."},
		{"ä\xff", "b", "ä\xff/b"},
	} {
		if got, want := rendered(p, tt.host, tt.program), "/var/log/app/"+tt.want+".log.gz"; got != want {
			t.Errorf("host %q, program %q: %q, want %q", tt.host, tt.program, got, want)
		}
	}
	for text, want := range map[string]string{
		"/p/$host$program":      "/p/____", // two values, each safe
		"/p/$host$host$program": "/p/______",
		"/p/${pid:-a/../b}":     "/p/a_.._b",
		"/p/${pid:-}":           "/p/_",
		"/p/x$pid":              "/p/x_",
	} {
		if got := rendered(mustPath(t, text), "..", ".."); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// SE01: a long value is cut between characters and told apart by a hash; all
// values of a component together fit into a name.
func TestLongValues(t *testing.T) {
	p := mustPath(t, "/p/$host")
	long := strings.Repeat("a", 300)
	got := strings.TrimPrefix(rendered(p, long, ""), "/p/")
	if !strings.HasPrefix(got, long[:200]+"-") || len(got) > 200+hashSize {
		t.Errorf("300 bytes: %q", got)
	}
	if other := rendered(p, long+"b", ""); other == "/p/"+got {
		t.Error("two names are one")
	}
	if got := rendered(p, long[:200], ""); got != "/p/"+long[:200] {
		t.Errorf("200 bytes: %q", got)
	}
	for shift := range 4 {
		if got := rendered(p, long[:shift]+strings.Repeat("😀", 80), ""); !utf8.ValidString(got) {
			t.Errorf("shifted by %d: cut inside a character: %q", shift, got)
		}
	}
	if got := rendered(p, strings.Repeat("\x80", 300), ""); len(got) < len("/p/")+200 {
		t.Errorf("no UTF-8: %q", got)
	}

	p = mustPath(t, "/p/$host-$program.$source/$host.log.gz")
	got = rendered(p, long, strings.Repeat("b", 300))
	parts := strings.Split(strings.TrimPrefix(got, "/p/"), "/")
	if len(parts) != 2 || len(parts[0]) > 250 || !strings.HasSuffix(parts[1], ".log.gz") || len(parts[1]) < 200 {
		t.Errorf("long host and program: %q", got)
	}
	if got := rendered(p, long, "nginx"); !strings.Contains(got, "-nginx._/") {
		t.Errorf("a short value beside a long one: %q", got)
	}
}

// SE04: a facility that there is not is that of PRI 13. FI14: a path goes by
// the receive time.
func TestPathOfHeader(t *testing.T) {
	p := mustPath(t, "/p/$facility/%Y")
	for _, datagram := range []string{
		"<192>x", "<210>x", "<999>x", "<2100>x", "x",
		"<13>1 1969-12-31T23:59:59Z h a - - - x", "<13>1 9999-01-01T00:00:00Z h a - - - x",
	} {
		m := scanned(datagram)
		if got := renderedAt(p, &m, m.Received); got != "/p/user/2026" {
			t.Errorf("%q: %q", datagram, got)
		}
	}
}

func TestPathParts(t *testing.T) {
	for _, tt := range []struct {
		text, prefix, overflow string
		fixed                  bool
	}{
		{"/var/log/x.log", "/var/log", "/var/log/_overflow.log", true},
		{"/x", "/", "/_overflow", true},
		{"/var/log/$host/x-%Y.log.gz", "/var/log", "/var/log/_overflow.log.gz", false},
		{"/var/log/x-$host.example.log", "/var/log", "/var/log/_overflow.example.log", false},
		{"/var/log/app/%Y/x", "/var/log/app", "/var/log/app/_overflow", false},
		{"/v1.2/$host.log.gz", "/v1.2", "/v1.2/_overflow.log.gz", false},
		{"/a/x.$host.gz", "/a", "/a/_overflow.gz", false},
		{"/a//b/$host", "/a/b", "/a/b/_overflow", false},
		{"/100%%/$$a", "/100%", "/100%/_overflow", true},
	} {
		p := mustPath(t, tt.text)
		if p.Prefix() != tt.prefix || p.overflow() != tt.overflow || p.Fixed() != tt.fixed || p.String() != tt.text {
			t.Errorf("%q: prefix %q, overflow %q, fixed %v", tt.text, p.Prefix(), p.overflow(), p.Fixed())
		}
	}
}

// A rendered path lies below the prefix, and no component is empty, begins
// with a dot or is longer than a file system takes.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"..", "../../etc/passwd", "/", "a\x00b", strings.Repeat("é", 150), ".\u2024.", ""} {
		f.Add(s, "nginx", `{"k":"../x"}`)
		f.Add("h", s, s)
	}
	templates := []*Path{
		mustPath(f, "/base/$host/$program.log"), mustPath(f, "/base/$host$program"),
		mustPath(f, "/base/$message/%Y-%m/${json.k}/x"), mustPath(f, "/base/x$1/${2:-..}$3$4"),
	}
	f.Fuzz(func(t *testing.T, host, program, text string) {
		m := message(text)
		m.Host, m.Tag = []byte(host), []byte(program)
		for _, p := range templates {
			path := renderedAt(p, &m, m.Received)
			below, err := filepath.Rel("/base", path)
			if err != nil || !filepath.IsLocal(below) || below != strings.TrimPrefix(path, "/base/") {
				t.Fatalf("%q leads to %q", p, path)
			}
			if slashes := strings.Count(p.String(), "/"); strings.Count(path, "/") != slashes || strings.IndexByte(path, 0) >= 0 {
				t.Fatalf("%q leads to %q", p, path)
			}
			for _, component := range strings.Split(below, "/") {
				if component == "" || component[0] == '.' || len(component) > 255 {
					t.Fatalf("%q leads to %q: component %q", p, path, component)
				}
			}
		}
	})
}

// namer is a naming with what it needs to be asked.
type namer struct {
	naming
	log *logbook
	buf *buffer.Buffer
}

func newNamer(t testing.TB, path string, maxNew int) *namer {
	t.Helper()
	n := &namer{log: new(logbook)}
	n.naming = newNaming("s", zerolog.New(n.log))
	n.set(mustPath(t, path), maxNew, nil)
	arena := newArena(t, 1<<20)
	n.buf = buffer.New("s", arena.Share(0), buffer.Limits{Messages: 1, Bytes: 4096, Flush: never})
	return n
}

// of returns the key of a host's message, which is taken.
func (n *namer) of(host string, at time.Time) string {
	m := syslog.Message{Received: at}
	m.Host = []byte(host)
	key := string(n.key(nil, &m, new(Origin), n.buf))
	n.took(1)
	return key
}

func TestMaxNewFiles(t *testing.T) {
	n := newNamer(t, "/p/$host-%d.log", 2)
	minute := received.Truncate(time.Minute)
	want := func(host, key string, at time.Time) {
		t.Helper()
		if got := n.of(host, at); got != key {
			t.Errorf("%s: %q, want %q", host, got, key)
		}
	}
	want("a", "/p/a-15.log", minute)
	want("b", "/p/b-15.log", minute)
	want("c", "/p/_overflow.log", minute)
	want("c", "/p/_overflow.log", minute.Add(59*time.Second))
	want("a", "/p/a-15.log", minute.Add(59*time.Second))
	if n.overflowed != 2 || n.log.count("max_new_files") != 1 {
		t.Errorf("%d overflowed; log:\n%s", n.overflowed, n.log)
	}
	want("c", "/p/c-15.log", minute.Add(time.Minute))
	want("d", "/p/d-15.log", minute.Add(time.Minute))
	// The next day is no new name, nor is a name after a reload.
	tomorrow := minute.Add(24 * time.Hour)
	for _, host := range []string{"a", "b", "c", "d"} {
		want(host, "/p/"+host+"-16.log", tomorrow)
	}
	want("e", "/p/e-16.log", tomorrow)
	n.set(mustPath(t, "/q/$host"), 2, nil)
	want("a", "/q/a", tomorrow)
	want("d", "/q/d", tomorrow)
	want("f", "/q/f", tomorrow)
	want("g", "/q/_overflow", tomorrow)

	// A message that is dropped goes to no file.
	before := n.overflowed
	m := syslog.Message{Received: tomorrow}
	m.Host = []byte("h")
	n.key(nil, &m, new(Origin), n.buf)
	if n.overflowed != before {
		t.Error("counted before it was taken")
	}
	if n.set(mustPath(t, "/q/$host"), 0, nil); n.of("i", tomorrow) != "/q/i" {
		t.Error("a limit where there is none")
	}
}

// Names in use stay known, however many there are.
func TestKnownNamesAreBounded(t *testing.T) {
	n := newNamer(t, "/p/$host", 3*maxKnown)
	for i := range 2*maxKnown + 10 {
		n.of(strings.Repeat("x", i%7)+time.Duration(i).String(), received)
		if i%1000 == 0 && n.of("busy", received) != "/p/busy" {
			t.Fatal("a name in use was forgotten")
		}
	}
	if len(n.known) > maxKnown || len(n.previous) > maxKnown {
		t.Errorf("%d and %d names are known", len(n.known), len(n.previous))
	}
	n.maxNew = 1 // used up
	if n.of("busy", received) != "/p/busy" {
		t.Error("a name in use was forgotten")
	}
}

// The path of a second is rendered once, and anew in the next.
func TestMarksFollowTime(t *testing.T) {
	n := newNamer(t, "/p/%H%M%S", 1)
	for _, tt := range []struct {
		after time.Duration
		want  string
	}{{0, "/p/102031"}, {700 * time.Millisecond, "/p/102031"}, {750 * time.Millisecond, "/p/102032"}, {0, "/p/102031"}} {
		if got := n.of("h", received.Add(tt.after)); got != tt.want {
			t.Errorf("%v later: %q, want %q", tt.after, got, tt.want)
		}
	}
}

// renderedAt is the path of a message that was received then.
func renderedAt(p *Path, m *syslog.Message, received time.Time) string {
	var at moment
	at.render(p, received)
	return string(p.append(nil, m, new(Origin), "s", &at))
}

func TestUsesPeer(t *testing.T) {
	path := func(text string) *Path {
		p, err := ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	template := func(text string) *Template {
		tmpl, err := ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		return tmpl
	}
	for _, tt := range []struct {
		conf Config
		want bool
	}{
		{Config{Format: Raw}, false},
		{Config{Format: Raw, Path: path("/a/$program-%Y.gz")}, false},
		{Config{Format: Raw, Path: path("/a/$host.gz")}, true},
		{Config{Format: Raw, Path: path("/a/x-${peer:-none}.gz")}, true},
		{Config{Format: RFC3164}, true},
		{Config{Format: RFC5424}, true},
		{Config{Format: JSON, Path: path("/a/b")}, true},
		{Config{Format: Templated, Template: template("$time $message")}, false},
		{Config{Format: Templated, Template: template("$host $message")}, true},
		{Config{Format: Templated, Template: template("$message $peer")}, true},
		{Config{Format: Templated, Template: template("$message"), Path: path("/a/$host")}, true},
	} {
		if got := tt.conf.UsesPeer(); got != tt.want {
			t.Errorf("%v, path %v: %v", tt.conf.Format, tt.conf.Path, got)
		}
	}
}
