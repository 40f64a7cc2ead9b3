package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// everySource is one source of each kind, each with a file of its own.
// DIR is the daemon's folder, UDP and TCP are ports, SELF is this binary.
const everySource = prelude + `
[source.udp]
type = "syslog"
listen = "udp://127.0.0.1:UDP"
sinks = ["file"]
[source.unixgram]
type = "syslog"
listen = "unixgram://gram.sock"
sinks = ["file"]
[source.tcp]
type = "syslog"
listen = "tcp://127.0.0.1:TCP"
sinks = ["file"]
[source.unix]
type = "syslog"
listen = "unix://stream.sock"
sinks = ["file"]
[source.fifo]
type = "fifo"
path = "in.fifo"
sinks = ["file"]
[program.program]
command = ["SELF"]
environment = { LOGBOOM_TEST_PROGRAM = "DIR" }
sinks = ["file"]
[sink.file]
type = "file"
path = "log/$source.gz"
flush = "100ms"
`

// traffic is senders to every source but the program, which sends by itself.
type traffic struct {
	all  map[string]*sender
	fifo *os.File
}

// startLoad sends 5,000 lines a second to every source.
func startLoad(t *testing.T, d *instance, udp, tcp int) *traffic {
	t.Helper()
	l := &traffic{fifo: openFIFO(t, d.path("in.fifo"))}
	l.all = map[string]*sender{
		"udp":      send("udp", 5000, toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", udp))),
		"unixgram": send("unixgram", 5000, toDatagrams(t, "unixgram", d.path("gram.sock"))),
		"tcp":      send("tcp", 5000, toStream(dial(t, "tcp", fmt.Sprintf("127.0.0.1:%d", tcp)))),
		"unix":     send("unix", 5000, toStream(dial(t, "unix", d.path("stream.sock")))),
		"fifo":     send("fifo", 5000, toStream(l.fifo)),
	}
	return l
}

// halt ends the senders and returns how many lines each has sent.
func (l *traffic) halt() map[string]int {
	sent := make(map[string]int)
	for name, s := range l.all {
		sent[name] = s.halt()
	}
	return sent
}

// startEverySource runs a daemon with all sources, and the load.
func startEverySource(t *testing.T) (*instance, *traffic) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, udp, tcp := t.TempDir(), freePort(t, "udp"), freePort(t, "tcp")
	configure(t, dir, fill(everySource, "DIR", dir, "SELF", self, "UDP", udp, "TCP", tcp))
	d := runDaemon(t, dir)
	return d, startLoad(t, d, udp, tcp)
}

// received waits until each source has received some messages.
func (d *instance) received(n uint64) {
	d.t.Helper()
	eventually(d.t, 20*time.Second, fmt.Sprintf("%d messages from each source", n), func() bool {
		for _, s := range d.status().Sources {
			if s.Received < n {
				return false
			}
		}
		return true
	})
}

// TERM in the middle of full load: whatever was received is in the files, and
// what was not is still with its sender, or in the pipe.
func TestStopUnderLoad(t *testing.T) { // SU07, SU08
	d, senders := startEverySource(t)
	d.received(5000)
	got := d.stop()
	sent := senders.halt()
	count, err := strconv.Atoi(string(readFile(t, d.path("count"))))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for name, n := range sent {
		text := readGzip(t, d.path("log", name+".gz"))
		lines := wantInOrder(t, text, name)
		total += lines
		missing := n - lines
		switch name {
		case "udp":
			missing -= got.kernelDropped
		case "fifo": // its sender holds it open, and so what nobody read
			missing -= bytes.Count(leftIn(t, d.path("in.fifo")), []byte("\n"))
			if missing != 0 {
				t.Errorf("fifo: %d of %d lines are missing", missing, n)
			}
		}
		if last := numbersOf(t, text, name)[lines-1]; last != lines-1 && name != "udp" {
			t.Errorf("%s: the last of %d lines is number %d", name, lines, last)
		}
		// What came between the last look at a queue and its closing.
		if missing < 0 || missing > 2500 {
			t.Errorf("%s: %d of %d lines are missing", name, missing, n)
		}
	}
	wantAll(t, readGzip(t, d.path("log", "program.gz")), "program", count)
	wantSums(t, got, total+count)
}

// leftIn reads what a FIFO holds, while someone has it open for writing.
func leftIn(t *testing.T, path string) []byte {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var all []byte
	b := make([]byte, 1<<20)
	for {
		n, err := unix.Read(fd, b)
		if err == unix.EAGAIN || n == 0 {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b[:n]...)
	}
}

// A second TERM ends a stop that would take longer, and the exit code says
// that messages are undelivered.
func TestStopTwice(t *testing.T) {
	d := startDaemon(t, prelude+fill(`
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
sinks = ["remote", "file"]
[sink.remote]
type = "syslog"
targets = ["tcp://127.0.0.1:PORT"]
[sink.file]
type = "file"
path = "all.log"
`, "PORT", freePort(t, "tcp")))
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	for n := range 50 {
		if err := write(numbered(nil, "in", n)); err != nil {
			t.Fatal(err)
		}
	}
	d.signal(unix.SIGTERM)
	d.await("stopping", 5*time.Second)
	eventually(t, 5*time.Second, "the file has all", func() bool {
		text, err := os.ReadFile(d.path("all.log"))
		return err == nil && bytes.Count(text, []byte("\n")) == 50
	})
	begin := time.Now()
	d.signal(unix.SIGTERM)
	got := d.stopped(exitUndelivered)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the second TERM took %v", took)
	}
	if want := (sums{received: 50, delivered: 50, undelivered: 50}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	wantAll(t, readFile(t, d.path("all.log")), "in", 50)
	if text := d.stderr.String(); !bytes.Contains([]byte(text), []byte("stopped with 50 messages undelivered")) {
		t.Errorf("no word of it: %s", text)
	}
}

// A stop that a dead remote holds up ends at stop_timeout.
func TestStopTimeout(t *testing.T) {
	d := startDaemon(t, fill(`stop_timeout = "1s"
runtime_dir = "run"
state_dir = "state"
http.address = ""
[source.in]
type = "stdin"
sinks = ["remote"]
[sink.remote]
type = "syslog"
targets = ["tcp://127.0.0.1:PORT"]
`, "PORT", freePort(t, "tcp")), withStdin(t, "one\ntwo"))
	begin := time.Now()
	got := d.stopped(exitUndelivered)
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("the stop took %v with a stop_timeout of 1s", took)
	}
	if want := (sums{received: 2, undelivered: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
