package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// moreSources are further kinds of those in trafficSources.
const moreSources = `
[source.gram]
type = "syslog"
listen = "unixgram://gram.sock"
when_full = "block"
sinks = ["file", "remote"]
[program.program]
command = ["SELF"]
environment = { LOGBOOM_TEST_PROGRAM = "FOLDER" }
sinks = ["file"]
[sink.remote]
type = "syslog"
targets = ["tcp://REMOTE"]
format = "raw"
retry = { min = "100ms", max = "200ms" }
`

// memory.cap changes under load, up and down: nothing is lost or comes twice,
// sources go on, and what a remote has not taken is delivered out of the old
// arena, which is gone then.
func TestReloadMemoryCap(t *testing.T) {
	p := freePorts(t)
	remote := freePort(t, "tcp")
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	conf := func(size string) string {
		return p.with(prelude+"[memory]\ncap = \""+size+"\"\n"+trafficSources+trafficSink) +
			fill(moreSources, "SELF", self, "FOLDER", dir, "REMOTE", fmt.Sprintf("127.0.0.1:%d", remote))
	}
	configure(t, dir, conf("16MiB"))
	d := runDaemon(t, dir)
	senders := startTraffic(t, d, p)
	write := toDatagrams(t, "unixgram", d.path("gram.sock"))
	n := 0
	burst := func() {
		for range 500 {
			if err := write(numbered(nil, "gram", n)); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	burst()
	d.await("cannot deliver", 10*time.Second)
	if got := arenas(t, d.path("run")); len(got) != 1 {
		t.Fatalf("%v, want one arena", got)
	}
	for _, size := range []string{"32MiB", "8MiB", "24MiB"} {
		d.reload(conf(size), "reloaded")
		burst()
		before := d.status()
		eventually(t, 10*time.Second, "messages after a reload", func() bool {
			now := d.status()
			for _, name := range []string{"udp", "tcp", "fifo", "program"} {
				if now.Sources[name].Received < before.Sources[name].Received+1000 {
					return false
				}
			}
			return true
		})
	}
	if got := arenas(t, d.path("run")); len(got) < 2 {
		t.Errorf("%v: what the remote has not taken is in older ones", got)
	}
	if got := d.entries("next start"); len(got) > 0 {
		t.Errorf("%v", got)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", remote))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	lines := bufio.NewReader(c)
	for i := range n {
		line, err := lines.ReadBytes('\n')
		if want := numbered(nil, "gram", i); err != nil || string(line) != string(want) {
			t.Fatalf("line %d: %q, %v, want %q", i, line, err, want)
		}
	}
	eventually(t, 20*time.Second, "one arena, the newest", func() bool { return len(arenas(t, d.path("run"))) == 1 })
	if info, err := os.Stat(arenas(t, d.path("run"))[0]); err != nil || info.Size() < 24<<20 || info.Size() > 26<<20 {
		t.Errorf("%v, %v: it is not of 24 MiB", info, err)
	}
	sent := senders.halt()
	sent["gram"] = n
	got := d.stop()
	sent["program"] = programCount(t, dir)
	total := wantEverything(t, sent, d.path("log", "*.gz"))
	if got.received != total || got.dropped != 0 || got.lost != 0 || got.delivered != total+n {
		t.Errorf("%+v, want %d received and none dropped or lost", got, total)
	}
	if left := arenas(t, d.path("*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// programCount is how many lines the program of a test has written.
func programCount(t *testing.T, dir string) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "count"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A daemon is killed while its arena is renewed: all that was in either is
// delivered once, in order.
func TestKillWhileRenewed(t *testing.T) {
	w := newKillWorld(t, logboom(t))
	conf, err := os.ReadFile(filepath.Join(w.dir, "conf.toml"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := []string{"16MiB", "32MiB", "64MiB"}
	renewed := 0
	for range 12 {
		d := w.run()
		d.await("started", 20*time.Second)
		for range 1 + rand.N(3) {
			size := sizes[rand.N(len(sizes))]
			configure(t, w.dir, strings.Replace(string(conf), `"16MiB"`, `"`+size+`"`, 1))
			d.signal(unix.SIGHUP)
			time.Sleep(rand.N(60 * time.Millisecond)) // a random moment
		}
		if len(d.entries("reloaded")) > 0 {
			renewed++
		}
		w.kill(d, func() {
			d.signal(unix.SIGKILL)
			d.wait(5 * time.Second)
		})
	}
	if renewed == 0 {
		t.Error("no kill came after a reload")
	}
	w.finish()
	t.Logf("%d messages, each once", w.messages)
}

// An arena that does not fit is a reload that is refused.
func TestReloadMemoryCapRefused(t *testing.T) {
	needRoot(t, "mounts a small tmpfs")
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", run, "tmpfs", 0, "size=24m"); err != nil {
		t.Skip("cannot mount a tmpfs here:", err)
	}
	t.Cleanup(func() { unix.Unmount(run, unix.MNT_DETACH) })
	conf := func(size string) string {
		return strings.Replace(fill(arenaConf, "SINK", "f"), "[batch]", "[memory]\ncap = \""+size+"\"\n[batch]", 1)
	}
	configure(t, dir, conf("8MiB"))
	d := runDaemon(t, dir)
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	before := arenas(t, run)
	write([]byte("before\n"))
	d.received(1)
	d.reload(conf("64MiB"), "reload refused")
	said := fmt.Sprint(d.entries("reload refused")[0]["error"])
	if !strings.Contains(said, "memory.cap") || !strings.Contains(said, "no space left") {
		t.Errorf("refused because of %q", said)
	}
	write([]byte("after\n"))
	d.received(2)
	if got := arenas(t, run); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("%v, want the one from before: %v", got, before)
	}
	d.reload(conf("12MiB"), "reloaded")
	eventually(t, 10*time.Second, "the old arena is gone", func() bool { return len(arenas(t, run)) == 1 })
	write([]byte("last\n"))
	d.received(3)
	d.stop()
	if got := string(readGzip(t, d.path("log/f.gz"))); got != "before\nafter\nlast\n" {
		t.Errorf("%q", got)
	}
}
