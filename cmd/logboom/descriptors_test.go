package main

import (
	"fmt"
	"testing"
	"time"
)

// Where the limit of open files is low, max_open is lowered to what it leaves,
// so that beside all its files the daemon has descriptors for a program.
func TestLowFileLimit(t *testing.T) {
	const hosts = 400
	d := startDaemon(t, prelude+`
[source.in]
type = "syslog"
listen = "unix://in.sock"
max_connections = 50
sinks = ["file"]
[program.late]
command = ["sh", "-c", "ulimit -n; exec sleep 300"]
autostart = false
startsecs = 0
sinks = ["out"]
[sink.file]
type = "file"
path = "log/$host.log"
flush = "10ms"
`+plainSink, behind("sh", "-c", `ulimit -n 256; exec "$@"`, "sh"))
	e := d.await("max_open is lowered", 10*time.Second)
	// A process, its own, 50 connections, and the other file.
	if want := 256 - ownDescriptors - processDescriptors - 50 - 1; e["max_open"] != float64(want) || e["limit"] != 256.0 {
		t.Errorf("%v, want max_open %d", e, want)
	}
	c := dial(t, "unix", d.path("in.sock"))
	for n := range hosts {
		if _, err := fmt.Fprintf(c, "<14>Mar 15 10:20:30 host%d app: x\n", n); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, "all is delivered", func() bool { return d.status().Sinks["file"].Delivered == hosts })
	d.wantCtl(0, "late: started\n", "", "start", "late")
	if got := d.lines("out.log", 1)[0]; got != "256" {
		t.Errorf("the program's limit is %s", got)
	}
	if failed := d.entries("too many open files"); len(failed) > 0 {
		t.Error(failed)
	}
	wantSums(t, d.stop(), hosts+1)
}
