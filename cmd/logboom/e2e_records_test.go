package main

import (
	"strings"
	"testing"
	"time"
)

// A PHP exception with its stack trace is one message, of a program as of a
// FIFO: one line where LF is escaped, as it was where nothing is.
func TestMultiline(t *testing.T) {
	const trace = "[2026-03-15 10:20:30] local.ERROR: no {\n[stacktrace]\n#0 a.php(1)\n\"}\n[2026-03-15 10:20:31] local.INFO: yes\n"
	d := startDaemon(t, prelude+`
[program.php]
command = ["printf", "%s", '''`+trace+`''']
multiline = { start = '^\[\d{4}-' }
prefix = "php "
startsecs = 0
sinks = ["out", "as-is"]
[sink.as-is]
type = "file"
path = "as-is.log"
escape = "none"
flush = "10ms"
`+plainSink)
	got := d.lines("out.log", 2)
	want := []string{
		"php [2026-03-15 10:20:30] local.ERROR: no {#012[stacktrace]#012#0 a.php(1)#012\"}",
		"php [2026-03-15 10:20:31] local.INFO: yes",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	asIs := ""
	eventually(t, 10*time.Second, "the records as they are", func() bool {
		asIs = strings.ReplaceAll(strings.Join(d.lines("as-is.log", 5), "\n")+"\n", "php [", "[")
		return asIs == trace
	})
	if got := d.stop(); got.received != 2 || got.delivered != 4 {
		t.Errorf("%+v", got)
	}
}
