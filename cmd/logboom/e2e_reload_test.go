package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// trafficSources have a sink each, since the tests change them one by one.
const trafficSources = `
[source.udp]
type = "syslog"
listen = "udp://127.0.0.1:UDP"
sinks = ["file"]
[source.tcp]
type = "syslog"
listen = "tcp://127.0.0.1:TCP"
sinks = ["file"]
[source.fifo]
type = "fifo"
path = "in.fifo"
sinks = ["file"]
`

const trafficSink = `
[sink.file]
type = "file"
path = "log/$source.gz"
flush = "100ms"
`

// ports of a test's UDP and TCP source.
type ports struct{ udp, tcp int }

func freePorts(t *testing.T) ports { return ports{freePort(t, "udp"), freePort(t, "tcp")} }

// with fills a config's words in.
func (p ports) with(conf string) string { return fill(conf, "UDP", p.udp, "TCP", p.tcp) }

// startTraffic sends 5,000 lines a second to each of trafficSources.
func startTraffic(t *testing.T, d *instance, p ports) *traffic {
	t.Helper()
	l := &traffic{fifo: openFIFO(t, d.path("in.fifo"))}
	l.all = map[string]*sender{
		"udp":  send("udp", 5000, toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", p.udp))),
		"tcp":  send("tcp", 5000, toStream(dial(t, "tcp", fmt.Sprintf("127.0.0.1:%d", p.tcp)))),
		"fifo": send("fifo", 5000, toStream(l.fifo)),
	}
	return l
}

// reload writes another config, has it read, and waits for the outcome: what
// the own log says.
func (d *instance) reload(conf, outcome string) {
	d.t.Helper()
	configure(d.t, d.dir, conf)
	before := len(d.entries(outcome))
	d.signal(unix.SIGHUP)
	eventually(d.t, 10*time.Second, outcome, func() bool { return len(d.entries(outcome)) > before })
}

// wantEverything checks that all that was sent is in files whose paths have a
// pattern, of which * is the sender: each line once, and, of one file, in the
// order sent.
func wantEverything(t *testing.T, sent map[string]int, patterns ...string) (total int) {
	t.Helper()
	for name, n := range sent {
		var numbers []int
		for _, pattern := range patterns {
			path := fill(pattern, "*", name)
			if _, err := os.Stat(path); err == nil {
				text := readGzip(t, path)
				wantInOrder(t, text, name)
				numbers = append(numbers, numbersOf(t, text, name)...)
			}
		}
		slices.Sort(numbers)
		for i, number := range numbers {
			if i != number {
				t.Fatalf("%s: number %d is missing or there twice (%d lines of %d)", name, i, len(numbers), n)
			}
		}
		if len(numbers) != n {
			t.Errorf("%s: %d lines, want %d", name, len(numbers), n)
		}
		total += n
	}
	return total
}

// A config that cannot be had leaves everything as it is, with one line that
// says why.
func TestReloadRefused(t *testing.T) { // CF02, CF03
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := freePorts(t)
	good := p.with(prelude + trafficSources + trafficSink)
	d := startDaemon(t, good)
	senders := startTraffic(t, d, p)
	d.received(1000)
	descriptors := d.descriptors()
	for _, bad := range []struct{ conf, why string }{
		{good + "[sink.more\n", "conf.toml:"},
		{good + "[sink.more]\ntype = \"file\"\npath = \"more.log\"\n", "sink.more"},
		{
			// Everything else is changed, too.
			p.with(prelude) + fill(p.with(trafficSources), "listen =", "max_message = \"8KiB\"\nlisten =") +
				fill(trafficSink, "log/", "other/") + "[source.more]\ntype = \"syslog\"\nsinks = [\"file\"]\n" +
				fmt.Sprintf("listen = \"udp://%s\"\n", taken.LocalAddr()),
			"address already in use",
		},
	} {
		before := len(d.entries(""))
		d.reload(bad.conf, "reload refused")
		said := d.entries("reload refused")
		if text := fmt.Sprint(said[len(said)-1]["error"]); !strings.Contains(text, bad.why) {
			t.Errorf("refused because of %q, want %q", text, bad.why)
		}
		if lines := d.entries("")[before:]; len(lines) != 1 && !strings.Contains(bad.why, "in use") {
			t.Errorf("%d lines, want 1: %v", len(lines), lines)
		}
	}
	// A pipe that waits is looked at with another, which may not have been there.
	eventually(t, 5*time.Second, fmt.Sprintf("no more than %d descriptors", descriptors), func() bool {
		return d.descriptors() <= descriptors+2
	})
	d.reload(good, "reloaded")
	sent := senders.halt()
	got := d.stop()
	wantSums(t, got, wantEverything(t, sent, d.path("log", "*.gz")))
	if _, err := os.Stat(d.path("other")); err == nil {
		t.Error("a refused config has made a folder")
	}
}

// Sources and sinks come, change and go under load: nothing is lost, and
// nothing is left open.
func TestReloadUnderLoad(t *testing.T) { // FW18
	p := freePorts(t)
	more := freePort(t, "udp")
	confs := []string{
		p.with(prelude + trafficSources + trafficSink),
		// More of everything; the sink writes elsewhere.
		p.with(prelude+trafficSources+fill(trafficSink, "log/", "other/", "100ms", "50ms")) + fill(`
[source.more]
type = "syslog"
listen = "udp://127.0.0.1:MORE"
sinks = ["more"]
[sink.more]
type = "file"
path = "more.gz"
`, "MORE", more),
		// The sources whose sockets and pipes can be taken over are opened anew.
		p.with(prelude + fill(trafficSources, "UDP\"", "UDP\"\nmax_message = \"32KiB\"",
			`"in.fifo"`, "\"in.fifo\"\nmax_line = \"64KiB\"") + trafficSink),
		// Another sink in the place of the first.
		p.with(prelude + fill(trafficSources, `["file"]`, `["last"]`) + fill(trafficSink, "sink.file", "sink.last", "log/", "last/")),
	}
	d := startDaemon(t, confs[0])
	senders := startTraffic(t, d, p)
	d.received(1000)
	descriptors := 0
	for i := range 20 {
		d.reload(confs[(i+1)%len(confs)], "reloaded")
		if i == 3 {
			// All of the files that a sink writes to are open by now.
			d.received(3000)
			descriptors = d.descriptors()
		}
		before := d.status()
		eventually(t, 10*time.Second, "messages after a reload", func() bool {
			now := d.status()
			for name := range senders.all {
				if now.Sources[name].Received <= before.Sources[name].Received {
					return false
				}
			}
			return true
		})
	}
	// A pipe that waits is looked at with another, which may not have been there.
	eventually(t, 10*time.Second, fmt.Sprintf("%d descriptors, as after the first round", descriptors), func() bool {
		return d.descriptors() <= descriptors+2
	})
	sent := senders.halt()
	got := d.stop()
	total := wantEverything(t, sent, d.path("log", "*.gz"), d.path("other", "*.gz"), d.path("last", "*.gz"))
	if got.received != total || got.kernelDropped != 0 || got.dropped != 0 || got.lost != 0 {
		t.Errorf("%+v, want %d received and none dropped or lost", got, total)
	}
}

// A source that is to listen elsewhere still takes what came to the old
// address.
func TestReloadListen(t *testing.T) {
	first, second := freePort(t, "udp"), freePort(t, "udp")
	conf := prelude + `
[source.udp]
type = "syslog"
listen = "udp://127.0.0.1:UDP"
sinks = ["file"]
` + trafficSink
	d := startDaemon(t, fill(conf, "UDP", first))
	write := toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", first))
	n := 0
	burst := func() {
		for range 500 {
			if err := write(numbered(nil, "udp", n)); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	burst()
	d.reload(fill(conf, "UDP", second), "reloaded")
	write = toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", second))
	burst()
	eventually(t, 5*time.Second, "nobody listens on the old address", func() bool {
		c, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", first))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	got := d.stop()
	wantAll(t, readGzip(t, d.path("log", "udp.gz")), "udp", n)
	wantSums(t, got, n)
}

// What could not be sent to a target goes to the one that a reload names.
func TestReloadTarget(t *testing.T) { // FW18
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conf := prelude + `
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
sinks = ["remote"]
[sink.remote]
type = "syslog"
format = "raw"
targets = ["tcp://TARGET"]
flush = "50ms"
`
	d := startDaemon(t, fill(conf, "TARGET", fmt.Sprintf("127.0.0.1:%d", freePort(t, "tcp"))))
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	for n := range 1000 {
		if err := write(numbered(nil, "in", n)); err != nil {
			t.Fatal(err)
		}
	}
	d.await("cannot deliver", 5*time.Second)
	d.reload(fill(conf, "TARGET", l.Addr()), "reloaded")
	l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	lines := bufio.NewReader(c)
	for n := range 1000 {
		line, err := lines.ReadBytes('\n')
		if want := numbered(nil, "in", n); err != nil || string(line) != string(want) {
			t.Fatalf("line %d: %q, %v, want %q", n, line, err, want)
		}
	}
	eventually(t, 5*time.Second, "the sink is well", func() bool { return d.status().Sinks["remote"].Buffered == 0 })
	if n := len(d.entries("delivering again")); n != 1 {
		t.Errorf("%d lines say that it delivers again\n%s", n, d.stderr.String())
	}
	wantSums(t, d.stop(), 1000)
}

// A reopen under load: what is renamed is whole and gets nothing more.
func TestReopenUnderLoad(t *testing.T) { // FI01, GZ04
	p := freePorts(t)
	d := startDaemon(t, p.with(prelude+trafficSources+trafficSink))
	senders := startTraffic(t, d, p)
	const times = 20
	patterns := []string{d.path("log", "*.gz")}
	for i := range times {
		eventually(t, 5*time.Second, "a new file of each", func() bool {
			for name := range senders.all {
				if stat, err := os.Stat(d.path("log", name+".gz")); err != nil || stat.Size() == 0 {
					return false
				}
			}
			return true
		})
		suffix := fmt.Sprintf(".%02d", i)
		patterns = append(patterns, d.path("log", "*.gz"+suffix))
		for name := range senders.all {
			path := d.path("log", name+".gz")
			if err := os.Rename(path, path+suffix); err != nil {
				t.Fatal(err)
			}
		}
		d.signal(unix.SIGUSR1)
	}
	eventually(t, 5*time.Second, "no renamed file is open", func() bool {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.pid()))
		if err != nil || len(open) == 0 {
			t.Fatalf("%v, %v", open, err)
		}
		return !slices.ContainsFunc(open, func(fd string) bool {
			target, _ := os.Readlink(fd)
			return strings.Contains(target, ".gz.")
		})
	})
	sent := senders.halt()
	got := d.stop()
	wantSums(t, got, wantEverything(t, sent, patterns...))
}

// A path that gets $host by a reload has the senders' addresses from then on.
func TestReloadAsksForPeers(t *testing.T) {
	port := freePort(t, "udp")
	conf := func(path string) string {
		return fill(`
[source.udp]
type = "syslog"
listen = "udp://127.0.0.1:PORT"
sinks = ["file"]
[sink.file]
type = "file"
path = "`+path+`"
flush = "100ms"
`, "PORT", port)
	}
	d := startDaemon(t, conf("log/all.log"))
	c := dial(t, "udp", fmt.Sprintf("127.0.0.1:%d", port))
	fmt.Fprint(c, "before")
	d.lines("log/all.log", 1)
	d.reload(conf("log/$host.log"), "reloaded")
	fmt.Fprint(c, "after")
	if lines := d.lines("log/127.0.0.1.log", 1); lines[0] != "after" {
		t.Errorf("%q", lines)
	}
}
