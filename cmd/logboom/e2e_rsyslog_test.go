package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rsyslogConfig writes messages to a file as they come: what has been taken
// from the network and is not on disk is lost by a kill.
const rsyslogConfig = `global(workDirectory="%[1]s" maxMessageSize="64k")
main_queue(queue.type="Direct")
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="%[2]d")
template(name="message" type="string" string="%%msg%%\n")
*.* action(type="omfile" file="%[1]s/received" template="message")
`

// startRsyslog runs rsyslogd on a port, and returns when it listens.
func startRsyslog(t *testing.T, dir string, port int) *process {
	t.Helper()
	need(t, "rsyslogd")
	conf := filepath.Join(dir, "rsyslog.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, rsyslogConfig, dir, port), 0o600); err != nil {
		t.Fatal(err)
	}
	p := spawn(t, exec.Command("rsyslogd", "-n", "-f", conf, "-i", filepath.Join(dir, "pid")))
	eventually(t, 10*time.Second, "rsyslogd listens", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return p
}

// A remote that is restarted and killed gets every message at least once, no
// more of them twice than are counted, and never holds up a file that the same
// source feeds.
func TestRsyslog(t *testing.T) { // FW01, FW05
	need(t, "rsyslogd")
	dir, port := t.TempDir(), freePort(t, "tcp")
	configure(t, dir, prelude+fill(`
[source.fifo]
type = "fifo"
path = "in.fifo"
sinks = ["file", "remote"]
[sink.file]
type = "file"
path = "all.gz"
flush = "500ms"
[sink.remote]
type = "syslog"
targets = ["tcp://127.0.0.1:PORT"]
flush = "100ms"
escape = "none"
retry = { min = "50ms", max = "500ms" }
`, "PORT", port))
	rsyslog := startRsyslog(t, dir, port)
	d := runDaemon(t, dir)
	// 30,000 in all: 5,000 a second
	s := send("fifo", 5000, toStream(openFIFO(t, d.path("in.fifo"))))
	stopWatching := watchOldest(t, d)
	for i, how := range []unix.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGTERM} {
		at := uint64(i+1) * 7000
		eventually(t, 20*time.Second, fmt.Sprintf("%d messages", at), func() bool { return d.status().Sources["fifo"].Received >= at })
		rsyslog.signal(how)
		rsyslog.wait(10 * time.Second)
		down := d.status().Sources["fifo"].Received
		eventually(t, 20*time.Second, "more messages while it is down", func() bool { return d.status().Sources["fifo"].Received > down+1500 })
		rsyslog = startRsyslog(t, dir, port)
	}
	eventually(t, 20*time.Second, "30,000 messages", func() bool { return d.status().Sources["fifo"].Received >= 30000 })
	sent := s.halt()
	if late := stopWatching(); late > time.Second {
		t.Errorf("a message was %v old before it was in the file, with a flush of 500ms", late)
	}
	eventually(t, 10*time.Second, "all is sent", func() bool { return d.status().Sinks["remote"].Buffered == 0 })
	resent := int(d.metric(`logboom_resent_total{sink="remote"}`))
	got := d.stop()
	if want := (sums{received: sent, delivered: 2 * sent}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	wantAll(t, readGzip(t, d.path("all.gz")), "fifo", sent)
	rsyslog.signal(unix.SIGTERM)
	rsyslog.wait(10 * time.Second)
	wantAtLeastOnce(t, readFile(t, filepath.Join(dir, "received")), sent, resent)
}

// wantAtLeastOnce checks what rsyslog has written: the first n lines of the
// sender "fifo", of which no more than some twice. rsyslog puts a blank before
// each, and its own messages among them; a kill can tear its last line.
func wantAtLeastOnce(t *testing.T, text []byte, n, twice int) {
	t.Helper()
	var got []int
	for line := range bytes.Lines(text) {
		line = bytes.ReplaceAll(bytes.TrimPrefix(line, []byte(" ")), []byte("#011"), []byte("\t"))
		var number int
		if _, err := fmt.Sscanf(string(line), "fifo %d ", &number); err == nil && bytes.Equal(line, numbered(nil, "fifo", number)) {
			got = append(got, number)
		}
	}
	total := len(got)
	slices.Sort(got)
	got = slices.Compact(got)
	for i, number := range got {
		if number != i {
			t.Fatalf("number %d never arrived, of %d (%d were sent again)", i, n, twice)
		}
	}
	if len(got) != n {
		t.Errorf("%d messages arrived, want %d", len(got), n)
	}
	doubled := total - len(got)
	t.Logf("%d messages, %d arrived twice, %d were sent again", n, doubled, twice)
	if doubled > twice {
		t.Errorf("%d messages arrived twice, and %d were sent again", doubled, twice)
	}
}

// watchOldest looks all the time how old the oldest message is that the sink
// "file" holds, until the function that it returns is called, which returns
// the most that it saw.
func watchOldest(t *testing.T, d *instance) (stop func() time.Duration) {
	done, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() { // ends with stop
		var worst float64
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			page, err := askDaemon(d.path("run"), "/metrics")
			if err != nil {
				t.Error(err)
			}
			worst = max(worst, metricIn(t, page, `logboom_oldest_seconds{sink="file"}`))
			select {
			case <-tick.C:
			case <-done:
				most <- time.Duration(worst * float64(time.Second))
				return
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-most
	}
}
