package sink

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"logboom/syslog"
)

func TestTemplate(t *testing.T) {
	m := scanned(`<165>1 2026-03-15T10:20:30Z web1 app 12 - - {"a":{"b":"x y"},"n":1.50,"z":null,"l":[1, 2],"a.c":"dot"}`)
	words := scanned("<13>Mar 15 10:20:30 t:  one\ttwo \n three ")
	o := Origin{Source: "src", Stream: "stderr", LocalHost: "here"}
	for _, tt := range []struct {
		text, want string
		m          *syslog.Message
	}{
		{"", "", &m},
		{"no variable", "no variable", &m},
		{"$host $program[$pid] $facility.$severity", "web1 app[12] local4.notice", &m},
		{"${source}/${sink}/${stream}/${peer}", "src/out/stderr/192.0.2.10", &m},
		{"$time", "2026-03-15T10:20:31.250Z", &m},
		{"$$host 100% %Y", "$host 100% %Y", &m},
		{"${pid:-none}", "12", &m},
		{"${pid:-none}", "none", &words},
		{"${pid:-}|$pid", "|", &words},
		{"$host", "192.0.2.10", &words},
		{"$1,$2,$3,$4", "one,two,three,", &words},
		{"$12", "one2", &words},
		{"$message", " one\ttwo \n three ", &words},
		{"${json.a.b}|${json.n}|${json.l}|${json.a}", `x y|1.50|[1, 2]|{"b":"x y"}`, &m},
		{"${json.a.c}|${json.z}|${json.a.x:-no}|${json.n.x}", "dot||no|", &m},
		{"${json.a:-no JSON}", "no JSON", &words},
	} {
		if got := string(mustTemplate(t, tt.text).append(nil, tt.m, &o, "out")); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// What is wrong is quoted.
func TestTemplateErrors(t *testing.T) {
	for _, tt := range []struct{ text, quoted string }{
		{"a $hots b", `"$hots"`},
		{"${hots:-x}", `"${hots:-x}"`},
		{"$", `"$"`},
		{"$0", `"$0"`},
		{"${10}", `"${10}"`},
		{"${json.}", `"${json.}"`},
		{"$json", `"$json"`},
		{"${host", `"${host"`},
		{"${}", `"${}"`},
		{"$Host", `"$Host"`},
	} {
		if _, err := ParseTemplate(tt.text); err == nil || !strings.Contains(err.Error(), tt.quoted) {
			t.Errorf("%q: error %v, want one with %s", tt.text, err, tt.quoted)
		}
	}
	for _, tt := range []struct{ path, quoted string }{
		{"/a/%", `"/a/%"`},
		{"/a/%Q.log", `"%Q"`},
		{"/a/%-d", `"%-"`},
		{"", "a path is needed"},
		{"/a/$host/", `"/a/$host/"`},
		{"/a/$host/../b", `".."`},
		{"/a/$host/./b", `"."`},
		{"/a$$$$/$host/..", `".."`},
		{"/a\x00b", `"/a\x00b"`},
		{"/a/$host$hots", `"$hots"`},
	} {
		if _, err := ParsePath(tt.path); err == nil || !strings.Contains(err.Error(), tt.quoted) {
			t.Errorf("%q: error %v, want one with %s", tt.path, err, tt.quoted)
		}
	}
}

// All marks are those of date(1).
func TestMarks(t *testing.T) {
	if _, err := exec.LookPath("date"); err != nil {
		t.Skip("no date(1) to compare with")
	}
	var all []string
	for m := range layouts {
		all = append(all, "%"+string(m))
	}
	text := strings.Join(append(all, "%s", "%G", "%V", "%u", "%w", "%%"), "|")
	path, err := ParsePath("/" + text)
	if err != nil {
		t.Fatal(err)
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "America/Sao_Paulo"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Skip("no zones here: ", err)
		}
		for _, at := range []string{
			"2026-01-01T00:00:00Z", "2024-12-30T12:00:00Z", "2024-02-29T23:59:59Z", "2026-03-29T01:00:00Z",
			"2026-10-25T00:59:59Z", "2027-01-03T04:05:06Z", "2026-07-05T18:09:07Z",
		} {
			cmd := exec.Command("date", "-d", at, "+/"+text)
			cmd.Env = []string{"TZ=" + zone, "LC_ALL=C"}
			want, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			instant, err := time.Parse(time.RFC3339, at)
			if err != nil {
				t.Fatal(err)
			}
			m := syslog.Message{Received: instant.In(location)}
			if got := renderedAt(path, &m, m.Received); got+"\n" != string(want) {
				t.Errorf("%s in %s:\n got %s\nwant %s", at, zone, got, want)
			}
		}
	}
}
