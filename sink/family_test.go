package sink

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"logboom/syslog"
)

// A line of descent holds the names of one set of values at all times, rotated
// or not, and no other.
func TestFamilyLine(t *testing.T) {
	const stamp = "-2026-03-15T10-20-30"
	for _, tt := range []struct {
		path  string
		of    string
		same  []string
		other []string // lines of others
		none  []string // none of the family's
	}{
		{"/l/access.log.gz", "/l/access.log.gz",
			[]string{"/l/access" + stamp + ".log.gz", "/l/access" + stamp + "-12.log.gz"}, nil,
			[]string{"/l/access.log.gz.1", "/l/access.log-20260315.gz", "/l/xaccess.log.gz", "/l/d/access.log.gz", "/access.log.gz",
				"/l/access.log", "/l/access.log.gz.torn", "/l/access" + stamp + ".log.gz.damaged", "/m/access.log.gz", "/l/access-2026.log.gz"}},
		{"/l/$host/access-%Y-%m-%d.log.gz", "/l/web1/access-2026-03-15.log.gz",
			[]string{"/l/web1/access-2025-12-31.log.gz", "/l/web1/access-2026-03-15" + stamp + ".log.gz"},
			[]string{"/l/web2/access-2026-03-15.log.gz", "/l/access-2026-03-15/access-2026-03-15.log.gz"},
			[]string{"/l/web1/access-2026-03.log.gz", "/l/_overflow.log.gz", "/l/web1/x/access-2026-03-15.log.gz"}},
		{"/l/%Y/%m/$program-%d.log", "/l/2026/03/app-15.log",
			[]string{"/l/2025/12/app-01.log", "/l/2025/12/app-01" + stamp + ".log"},
			[]string{"/l/2026/03/app-2-15.log"}, []string{"/l/x/03/app-15.log", "/l/2026/3/app-15.log"}},
		{"/l/$host-%F.log", "/l/a-2026-01-01-2026-03-15.log",
			[]string{"/l/a-2026-01-01-2026-03-16.log"}, []string{"/l/a-2026-03-15.log"}, nil},
		{"/l//x//%FT%H-%M-%S.log", "/l/x/2026-03-15T10-20-30.log", []string{"/l/x/2026-03-16T10-20-30.log"}, nil, nil},
		{"/l/app-%FT%H-%M-%S.log", "/l/app-2026-03-15T10-20-30.log", []string{"/l/app-2026-03-16T10-20-30.log"}, nil, []string{"/l/app.log"}},
		{"/l/a+b (1)-%d.log", "/l/a+b (1)-15.log", []string{"/l/a+b (1)-16.log"}, nil, []string{"/l/aab (1)-15.log"}},
	} {
		f := newFamily(mustPath(t, tt.path))
		want := strings.Join(f.line(tt.of), "/")
		if want == "" {
			t.Errorf("%s: %s is none of it", tt.path, tt.of)
		}
		for _, same := range tt.same {
			if got := strings.Join(f.line(same), "/"); got != want {
				t.Errorf("%s: %s is of %q, want %q", tt.path, same, got, want)
			}
		}
		for _, other := range tt.other {
			if got := strings.Join(f.line(other), "/"); got == want || got == "" {
				t.Errorf("%s: %s is of %q", tt.path, other, got)
			}
		}
		for _, none := range tt.none {
			if got := f.line(none); got != nil {
				t.Errorf("%s: %s is of %q", tt.path, none, got)
			}
		}
	}
}

// Whatever a mark makes of a time, the family knows the name.
func TestFamilyKnowsAllMarks(t *testing.T) {
	for m := range "YmdHMSyejIpbhBaAzZFTRsGVuw" {
		letter := "YmdHMSyejIpbhBaAzZFTRsGVuw"[m : m+1]
		p := mustPath(t, "/l/$host/x%"+letter+"y.log")
		f := newFamily(p)
		message := fromHost("h", "")
		var first string
		for _, at := range []time.Time{
			time.Date(2026, 3, 1, 1, 2, 3, 0, time.UTC), time.Date(2026, 9, 30, 23, 59, 59, 0, time.UTC),
			time.Date(2026, 12, 31, 12, 0, 0, 0, zone(t, "Asia/Kolkata")), time.Date(2027, 5, 4, 3, 2, 1, 0, zone(t, "America/Sao_Paulo")),
		} {
			path := renderedAt(p, &message, at)
			line := strings.Join(f.line(path), "/")
			if first == "" {
				first = line
			}
			if line == "" || line != first {
				t.Errorf("%%%s: %s is of %q, want %q", letter, path, line, first)
			}
		}
	}
}

// What senders invent stays of the family, whatever it is made safe to.
func FuzzFamily(f *testing.F) {
	for _, host := range []string{"web1", "..", "a/b", "-2026-03-15T10-20-30", "x\x00y\n", "\xff", strings.Repeat("x", 300), "a-2026-03-15"} {
		f.Add(host)
	}
	p, err := ParsePath("/l/$host/%Y/a-${host:-none}-%m.log.gz")
	if err != nil {
		f.Fatal(err)
	}
	family := newFamily(p)
	f.Fuzz(func(t *testing.T, host string) {
		m := syslog.Message{}
		m.Host = []byte(host)
		at := time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)
		path := renderedAt(p, &m, at)
		line := family.line(path)
		if line == nil {
			t.Fatalf("%q is none of it", path)
		}
		later := renderedAt(p, &m, at.AddDate(1, 1, 0))
		rotated := filepath.Join(filepath.Dir(later), rotatedName(filepath.Base(later), at, 0))
		for _, same := range []string{later, rotated} {
			if got := family.line(same); strings.Join(got, "/") != strings.Join(line, "/") {
				t.Errorf("%q is of %q, want %q", same, got, line)
			}
		}
	})
}
