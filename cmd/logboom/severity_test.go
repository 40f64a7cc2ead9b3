package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"logboom/proc"
)

func TestSeverityOf(t *testing.T) {
	for line, want := range map[string]string{
		`[2026-03-15 10:20:30] local.ERROR: no such {"a":1} []`:             "err",
		`[2026-03-15T10:20:30.123456+00:00] app.v2.WARNING: x`:              "warning",
		`[2026-03-15 10:20:30] production.EMERGENCY: `:                      "emerg",
		`[2026-03-15 10:20:30] local.DEBUG:`:                                "debug",
		`{"message":"x","context":{"level":"debug"},"level":400,"a":1}`:     "err",
		`{"message":"\"level\":\"debug\"","level_name":"CRITICAL"}`:         "crit",
		`{"level":"info","ts":1.5,"logger":"http.log.access","status":500}`: "info",
		`{"level" : "warn","msg":"RoadRunner"}`:                             "warning",
		`{"a":[{"level":"error"}],"level":250}`:                             "notice",
		`{"level":30,"time":1,"msg":"pino"}`:                                "info",
		`{"level":550}`:                                                     "alert",
		`{"level":"fatal"}`:                                                 "crit",
		``:                                                                  "",
		`[`:                                                                 "",
		`[stacktrace]`:                                                      "",
		`[2026] local.ERROR`:                                                "", // no colon
		`[2026] a message. ERROR: x`:                                        "",
		`[2026] local.NONE: x`:                                              "",
		`[` + strings.Repeat("x", 400) + `] local.ERROR: x`:                 "",
		`error: PHP message: level: info`:                                   "",
		`{`:                                                                 "",
		`{"`:                                                                "",
		`{"level`:                                                           "",
		`{"level":`:                                                         "",
		`{"level":"`:                                                        "",
		`{"level":"unheard of by anyone"}`:                                  "",
		`{"level":7}`:                                                       "",
		`{"level":{"level":"error"}}`:                                       "",
		`{"a":"level","b":"\\","level":"error`:                              "err",
	} {
		got := ""
		if s, ok := severityOf([]byte(line)); ok {
			got = severities[s]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// found puts blocks through a finder and returns what came out: SEVERITY TEXT.
func found(blocks ...proc.Block) (out []string, lines int) {
	take := autoSeverity.of(func(s Severity) func(proc.Block) {
		return func(b proc.Block) {
			out = append(out, severities[s]+" "+string(b.Text))
			lines += b.Lines
		}
	})
	for _, b := range blocks {
		take(b)
	}
	return out, lines
}

// Lines of one severity stay together and in their order, and no byte changes.
func TestSeverityFinder(t *testing.T) {
	const bad, worse = `{"level":"error"}`, `{"level":"alert"}`
	record := func(text string, partial bool) proc.Block {
		return proc.Block{Text: []byte(text), Lines: 1, Record: true, Partial: partial}
	}
	for _, tt := range []struct {
		in    []proc.Block
		want  string
		lines int
	}{
		{[]proc.Block{whole("a\n\nb\n")}, "info a\n\nb\n", 3},
		{[]proc.Block{whole("a\n" + bad + "\n" + bad + "\n"), whole("b\n")}, "info a\n|err " + bad + "\n" + bad + "\n|info b\n", 4},
		{[]proc.Block{whole(bad + "\n" + worse + "\n")}, "err " + bad + "\n|alert " + worse + "\n", 2},
		{[]proc.Block{piece(bad), more(piece("x")), more(piece("y\n")), piece("z"), more(piece("\n"))}, "err " + bad + "|err x|err y\n|info z|info \n", 5},
		{[]proc.Block{{Text: []byte(bad), Lines: 1, Last: true}}, "err " + bad, 1},
		{[]proc.Block{record(bad+"\n#0 x\n", false), record("#1 y\n", false)}, "err " + bad + "\n#0 x\n|info #1 y\n", 2},
		{[]proc.Block{record(bad+"\n", true), more(record(worse+"\n", true)), whole("a\n")}, "err " + bad + "\n|err " + worse + "\n|info a\n", 3},
		// What follows a record in pieces is of its own severity: a line too long for one block, or another record.
		{[]proc.Block{record(bad+"\n", true), piece(worse), more(piece("x\n"))}, "err " + bad + "\n|alert " + worse + "|alert x\n", 3},
		{[]proc.Block{record(bad+"\n", true), record("a\nb\n", false)}, "err " + bad + "\n|info a\nb\n", 2},
	} {
		got, lines := found(tt.in...)
		if strings.Join(got, "|") != tt.want || lines != tt.lines {
			t.Errorf("%d lines: %q, want %q", lines, strings.Join(got, "|"), tt.want)
		}
	}
}

// A severity that is set costs nothing, one that is looked for no allocation.
func TestSeverityAllocs(t *testing.T) {
	handlers := 0
	LineSeverity(info).of(func(Severity) func(proc.Block) {
		handlers++
		return nil
	})
	if handlers != 1 {
		t.Errorf("%d handlers for one severity", handlers)
	}
	if raceEnabled {
		t.Skip("allocations are not counted under the race detector")
	}
	take := autoSeverity.of(func(Severity) func(proc.Block) { return func(proc.Block) {} })
	b := whole(strings.Repeat("[2026-03-15 10:20:30] local.ERROR: x\n{\"message\":\"x\",\"level\":200}\nx\n", 100))
	if n := testing.AllocsPerRun(100, func() { take(b) }); n != 0 {
		t.Errorf("%v allocations a block", n)
	}
}

// Each line of a real log gets the severity that stands in it.
func TestSeveritySamples(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/php/*.log")
	if files == nil {
		t.Skip("the samples of PHP logs are not here")
	}
	seen := make(map[Severity]int)
	for _, file := range files {
		for line := range bytes.Lines(readFile(t, file)) {
			s, ok := severityOf(bytes.TrimSuffix(line, []byte("\n")))
			if ok {
				seen[s]++
			}
			for i, word := range []string{"EMERGENCY", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"} {
				for _, channel := range []string{"local", "production", "testing"} {
					head, _, _ := bytes.Cut(line, []byte(": "))
					if bytes.HasPrefix(line, []byte("[20")) && bytes.HasSuffix(head, []byte("] "+channel+"."+word)) && (!ok || s != Severity(i)) {
						t.Errorf("%s: %d, %v: %.80s", file, s, ok, line)
					}
				}
			}
		}
	}
	if len(seen) < 5 {
		t.Errorf("severities that were found: %v", seen)
	}
}

// What a line says decides where it goes and what its prefix says.
func TestSeverityAuto(t *testing.T) {
	const text = "[2026-03-15 10:20:30] local.ERROR: no\nplain\n{\"level\":300}\n"
	d := startDaemon(t, prelude+fmt.Sprintf(`
[program.php]
command = ["printf", "%%s", '''%s''']
severity = "auto"
prefix = "$severity: "
startsecs = 0
sinks = ["out", "bad"]
[sink.bad]
type = "file"
path = "bad.log"
flush = "10ms"
match = { severity = "warning" }
`, text)+plainSink)
	if got := d.lines("out.log", 3); strings.Join(got, "|") != "err: [2026-03-15 10:20:30] local.ERROR: no|info: plain|warning: {\"level\":300}" {
		t.Errorf("%q", got)
	}
	if got := d.lines("bad.log", 2); len(got) != 2 || got[1] != `warning: {"level":300}` {
		t.Errorf("%q", got)
	}
	d.stop()
}

func FuzzSeverityOf(f *testing.F) {
	for _, seed := range []string{`{"a":"\\","level":400}`, `[x] a.ERROR: `, `{"level":"`, `{"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if s, ok := severityOf(line); ok && int(s) >= len(severities) {
			t.Errorf("severity %d", s)
		}
		before := bytes.Clone(line)
		severityOf(line)
		if !bytes.Equal(before, line) {
			t.Error("the line was changed")
		}
	})
}

// The severity of a sink's match is one, not what a line says.
func TestSeverityAutoIsForLines(t *testing.T) {
	_, err := Load(write(t, "conf.toml", strings.Replace(minimal, `"stdout"`, `"stdout"`+"\nmatch = { severity = 'auto' }", 1)))
	if err == nil || !strings.Contains(err.Error(), `sink.out.match.severity`) {
		t.Errorf("%v", err)
	}
}
