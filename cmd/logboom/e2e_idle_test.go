package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe that waits announces the next line by SIGIO, also to a daemon whose
// parent blocks all signals that it can.
func TestSignalsBlockedAtStart(t *testing.T) {
	d := startDaemon(t, prelude+fill(`
[source.fifo]
type = "fifo"
path = "in.fifo"
sinks = ["file"]
`+trafficSink, "$source.gz", "out.log"), behind("env", "--block-signal"))
	if !d.blocks(unix.SIGIO) {
		t.Fatal("no thread was started with SIGIO blocked")
	}
	fifo := openFIFO(t, d.path("in.fifo"))
	var want strings.Builder
	for i := range 5 {
		eventually(t, 10*time.Second, "the pipe waits", func() bool { return d.announces("in.fifo") })
		line := fmt.Sprintln("line", i)
		want.WriteString(line)
		if _, err := fifo.WriteString(line); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, line, func() bool {
			got, _ := os.ReadFile(d.path("log", "out.log"))
			return string(got) == want.String()
		})
	}
	d.stop()
}

// blocks tells whether a thread of the process blocks a signal.
func (d *instance) blocks(signal unix.Signal) bool {
	d.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", d.pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, thread := range threads {
		_, mask, _ := strings.Cut(string(readFile(d.t, thread)), "SigBlk:")
		blocked, err := strconv.ParseUint(strings.Fields(mask)[0], 16, 64)
		if err != nil {
			d.t.Fatal(err)
		}
		if blocked&(1<<(signal-1)) != 0 {
			return true
		}
	}
	return false
}

// announces tells whether a file that the process has open sends SIGIO.
func (d *instance) announces(name string) bool {
	d.t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.pid()))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != d.path(name) {
			continue
		}
		info := string(readFile(d.t, strings.Replace(link, "/fd/", "/fdinfo/", 1)))
		_, flags, _ := strings.Cut(info, "flags:")
		n, err := strconv.ParseUint(strings.Fields(flags)[0], 8, 64)
		if err != nil {
			d.t.Fatalf("%q: %v", info, err)
		}
		if n&unix.O_ASYNC != 0 {
			return true
		}
	}
	return false
}
