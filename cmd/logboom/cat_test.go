package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"logboom/gzipwriter"
)

// epoch is the receive time of the first member's first message.
var epoch = time.Date(2026, 3, 15, 10, 0, 0, 0, time.UTC)

// span is when the messages of one member came, in seconds after epoch, and
// how many were dropped before them.
type span struct{ first, last, dropped int }

// spansOf returns a gzip file with a member for each span, of two lines:
// "0 a", "0 b" for the first.
func spansOf(t testing.TB, spans ...span) (list [][]byte) {
	t.Helper()
	w, err := gzipwriter.NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int) int64 { return epoch.Add(time.Duration(s) * time.Second).UnixNano() }
	for i, s := range spans {
		m, err := w.Member(fmt.Appendf(nil, "%d a\n%d b\n", i, i), gzipwriter.Info{
			Messages: 2, First: at(s.first), Last: at(s.last), Arena: 1, Sequence: uint64(i), Dropped: uint32(s.dropped),
		})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, bytes.Clone(m))
	}
	return list
}

// file writes a file of these parts and returns its path.
func file(t testing.TB, name string, parts ...[]byte) string {
	t.Helper()
	return write(t, name, string(bytes.Join(parts, nil)))
}

// theirs is a member as gzip(1) makes it.
func theirs(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The bounds belong to the window, and nothing that meets it is left out, in
// whatever order the members are: member 3 was written after the clock had
// been set back, and member 4 as it was.
func TestCatWindow(t *testing.T) {
	name := file(t, "x.gz", append(spansOf(t, span{0, 9, 0}, span{10, 20, 0}, span{21, 30, 0}, span{5, 12, 0}, span{31, 3, 0}), theirs(t, "theirs\n"))...)
	at := func(s int) string { return epoch.Add(time.Duration(s) * time.Second).Format(time.RFC3339) }
	for _, c := range []struct {
		args []string
		want string // members
	}{
		{nil, "01234t"},
		{[]string{"--since", at(0)}, "01234t"},
		{[]string{"--since", at(21)}, "24t"},
		{[]string{"--since", at(32)}, "t"},
		{[]string{"--until", at(3)}, "04t"},
		{[]string{"--until", at(2)}, "0t"},
		{[]string{"--until", at(-1)}, "t"},
		{[]string{"--since", at(9), "--until", at(9)}, "034t"},
		{[]string{"--since", at(10), "--until", at(10)}, "134t"},
		{[]string{"--since", at(20), "--until", at(21)}, "124t"},
		{[]string{"--since", at(13), "--until", at(15)}, "14t"},
		{[]string{"--since=-1s", "--until", at(30)}, ""},
	} {
		var want strings.Builder
		for _, m := range c.want {
			if m == 't' {
				want.WriteString("theirs\n")
			} else {
				fmt.Fprintf(&want, "%c a\n%c b\n", m, m)
			}
		}
		code, stdout, stderr := command(append([]string{"cat", name}, c.args...)...)
		if c.want == "" {
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, "is after --until") {
				t.Errorf("%v: exit %d, %q, %q", c.args, code, stdout, stderr)
			}
			continue
		}
		if code != 0 || stdout != want.String() || stderr != "" {
			t.Errorf("%v: exit %d, %q, want %q; %q", c.args, code, stdout, want.String(), stderr)
		}
	}
}

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("there", 2*3600)
	now := time.Date(2026, 3, 15, 12, 30, 0, 0, zone)
	for in, want := range map[string]string{
		"2026-03-14T10:00:00Z": "2026-03-14T12:00:00+02:00", "2026-03-14T10:00:00.5+02:00": "2026-03-14T10:00:00.5+02:00",
		"10:00": "2026-03-15T10:00:00+02:00", "23:59:58": "2026-03-15T23:59:58+02:00", "10:00:00.25": "2026-03-15T10:00:00.25+02:00",
		"-5m": "2026-03-15T12:25:00+02:00", "-1h30m": "2026-03-15T11:00:00+02:00", "-1d": "2026-03-14T12:30:00+02:00",
		"25:00": "", "": "", "5m": "", "-": "", "--5m": "", "-5": "", "yesterday": "", "2026-03-14": "", "10": "",
	} {
		got, err := parseTime(in, now)
		if (err != nil) != (want == "") || err == nil && got.In(zone).Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %v, %v, want %s", in, got, err, want)
		}
	}
	if w, err := parseWindow("", "", now); err != nil || w != (window{math.MinInt64, math.MaxInt64}) {
		t.Errorf("no bounds: %v, %v", w, err)
	}
	if _, err := parseWindow("x", "", now); err == nil || !strings.HasPrefix(err.Error(), `--since: "x" is no time`) {
		t.Error(err)
	}
}

// One file after the other, whatever is wrong with one of them.
func TestCatFiles(t *testing.T) {
	list := spansOf(t, span{0, 1, 0}, span{2, 3, 0}, span{4, 5, 0})
	whole := file(t, "whole.gz", list...)
	damaged := file(t, "damaged", list[0], []byte("garbage"), list[2])
	plain := file(t, "plain", []byte("line\n"))
	missing := filepath.Join(t.TempDir(), "none")
	code, stdout, stderr := command("cat", damaged, missing, plain, whole)
	if want := "0 a\n0 b\n2 a\n2 b\nline\n0 a\n0 b\n1 a\n1 b\n2 a\n2 b\n"; code != exitFailed || stdout != want {
		t.Errorf("exit %d, %q, want %q", code, stdout, want)
	}
	if want := fmt.Sprintf("%s: 7 bytes lost at offset %d: no member begins here\nopen %s: no such file or directory\n",
		damaged, len(list[0]), missing); stderr != want {
		t.Errorf("%q, want %q", stderr, want)
	}
	if code, _, stderr := command("cat", t.TempDir()); code != exitFailed || !strings.Contains(stderr, "is a directory") {
		t.Errorf("a folder: exit %d, %q", code, stderr)
	}
}

// Standard input is a stream or a file, and is taken from where there is no
// name too.
func TestCatStandardInput(t *testing.T) {
	list := spansOf(t, span{0, 1, 0}, span{2, 3, 0})
	name := file(t, "x", list...)
	for _, args := range [][]string{{"cat"}, {"cat", "-"}, {"cat", "--since", epoch.Add(2 * time.Second).Format(time.RFC3339)}} {
		want := "0 a\n0 b\n1 a\n1 b\n"
		if len(args) == 3 {
			want = "1 a\n1 b\n"
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for kind, in := range map[string]io.Reader{"stream": bytes.NewReader(bytes.Join(list, nil)), "file": f} {
			var out, stderr bytes.Buffer
			root := rootCommand()
			root.SetArgs(args)
			root.SetIn(in)
			root.SetOut(&out)
			root.SetErr(&stderr)
			if code := execute(root); code != 0 || out.String() != want || stderr.Len() > 0 {
				t.Errorf("%v of a %s: exit %d, %q, %q", args, kind, code, out.String(), stderr.String())
			}
		}
		f.Close()
	}
}

// `logboom cat x | head -n 1`, with SIGPIPE as a shell has it, and ignored.
func TestCatIntoHead(t *testing.T) {
	path := logboom(t)
	name := file(t, "x.gz", theirs(t, strings.Repeat("a line that is not short\n", 200_000)))
	for _, before := range []string{"", "trap '' PIPE; "} {
		cmd := exec.Command("bash", "-c", before+`"$0" cat "$1" | head -n 1; echo ${PIPESTATUS[0]}`, path, name)
		out, err := cmd.CombinedOutput()
		if got := string(out); err != nil || got != "a line that is not short\n141\n" && got != "a line that is not short\n0\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
