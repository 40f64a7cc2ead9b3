package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Whatever a daemon dies of under load, nothing is lost that had left the
// kernel's queue, and nothing comes twice.
func TestDeaths(t *testing.T) {
	logboom(t) // or skip
	faulty, err := faultyBinary()
	if err != nil {
		t.Fatal(err)
	}
	w := newKillWorld(t, faulty)
	die := func(d *instance, how string) {
		t.Helper()
		if code := d.wait(20 * time.Second); code == 0 {
			t.Errorf("%s: exit code 0\n%s", how, d.stderr.String())
		}
	}
	busy := func(d *instance) {
		t.Helper()
		d.await("started", 20*time.Second)
		time.Sleep(rand.N(100 * time.Millisecond)) // a random moment
	}
	for _, s := range []unix.Signal{unix.SIGSEGV, unix.SIGABRT, unix.SIGQUIT, unix.SIGBUS, unix.SIGILL} {
		d := w.run()
		busy(d)
		d.signal(s)
		die(d, s.String())
	}
	for _, step := range []string{"append", "seal", "intent"} {
		d := w.run("LOGBOOM_PANIC=" + step + ":5")
		die(d, "panic")
		if !strings.Contains(d.stderr.String(), "panic: LOGBOOM_PANIC") {
			t.Errorf("no panic\n%s", d.stderr.String())
		}
	}
	// docker stop, which does not wait for long enough, and an impatient operator.
	for _, second := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		d := w.run()
		busy(d)
		d.signal(unix.SIGTERM)
		time.Sleep(rand.N(10 * time.Millisecond)) // a random moment of the stop
		unix.Kill(d.pid(), second)
		d.wait(20 * time.Second) // it may have stopped in time
	}
	if group := newMemoryGroup(t); group != nil {
		d := w.run()
		busy(d)
		group.endOutOfMemory(d)
		die(d, "out of memory")
	}
	w.finish()
	t.Logf("%d messages, each once", w.messages)
}

// memoryGroup is a cgroup below the test's own that bounds memory.
type memoryGroup struct {
	t   *testing.T
	dir string
	max string // the file of the bound
}

// newMemoryGroup returns nil, and says why, where none can be made.
func newMemoryGroup(t *testing.T) *memoryGroup {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Log("no kill for want of memory:", err)
		return nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		g := &memoryGroup{t: t, max: "memory.limit_in_bytes"}
		switch {
		case len(fields) < 3:
			continue
		case fields[1] == "memory":
			g.dir = filepath.Join("/sys/fs/cgroup/memory", fields[2], fmt.Sprintf("logboom-test-%d", os.Getpid()))
		case fields[1] == "":
			g.dir, g.max = filepath.Join("/sys/fs/cgroup", fields[2], fmt.Sprintf("logboom-test-%d", os.Getpid())), "memory.max"
		default:
			continue
		}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			eventually(t, 10*time.Second, "the group is empty", func() bool { return unix.Rmdir(g.dir) == nil })
		})
		if err = os.WriteFile(filepath.Join(g.dir, g.max), []byte("96M"), 0); err == nil {
			return g
		}
	}
	t.Log("no kill for want of memory: no memory cgroup can be made here")
	return nil
}

// endOutOfMemory has the kernel's killer choose a daemon.
func (g *memoryGroup) endOutOfMemory(d *instance) {
	g.t.Helper()
	for file, text := range map[string]string{
		filepath.Join(g.dir, "cgroup.procs"):           fmt.Sprint(d.pid()),
		fmt.Sprintf("/proc/%d/oom_score_adj", d.pid()): "1000",
	} {
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			g.t.Fatal(err)
		}
	}
	// tail keeps the last line, which never ends.
	hog := spawn(g.t, exec.Command("sh", "-c", "echo $$ > "+g.dir+"/cgroup.procs && exec tail /dev/zero"))
	eventually(g.t, 30*time.Second, "the daemon is killed for want of memory", func() bool {
		select {
		case <-d.exited:
			return true
		default:
			return false
		}
	})
	hog.kill()
}

// blockedConf has a file that cannot be written while a file is in the place of
// its folder, and a remote that is dead.
const blockedConf = `runtime_dir = "run"
state_dir = "state"
stop_timeout = "STOP"
[http]
address = ""
[memory]
cap = "8MiB"
[batch]
messages = 10
[source.s]
type = "syslog"
listen = "unixgram://s.sock"
when_full = "block"
sinks = ["f", "free", "remote"]
[sink.f]
type = "file"
path = "blocked/f.gz"
[sink.free]
type = "file"
path = "free.gz"
[sink.remote]
type = "syslog"
targets = ["tcp://127.0.0.1:PORT"]
format = "raw"
`

// blocked is a daemon that holds messages it cannot deliver.
type blocked struct {
	*instance
	t    *testing.T
	sent int
	port int
}

func newBlocked(t *testing.T, stop string) *blocked {
	t.Helper()
	b := &blocked{t: t, sent: 200, port: freePort(t, "tcp")}
	dir := tmpfsDir(t)
	configure(t, dir, fill(blockedConf, "STOP", stop, "PORT", b.port))
	if err := os.WriteFile(filepath.Join(dir, "blocked"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.instance = runDaemon(t, dir)
	write := toDatagrams(t, "unixgram", b.path("s.sock"))
	for n := range b.sent {
		if err := write(numbered(nil, "s", n)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 20*time.Second, "what can be written is", func() bool {
		return b.status().Sinks["free"].Delivered == uint64(b.sent)
	})
	return b
}

// rerun runs a daemon of the same folder that is killed at a step.
func (b *blocked) rerun(at string, stop bool) {
	b.t.Helper()
	faulty, err := faultyBinary()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(faulty, "run", "-c", b.path("conf.toml"))
	cmd.Env = append(os.Environ(), "LOGBOOM_KILL="+at)
	d := &instance{process: spawn(b.t, cmd), dir: b.dir}
	if stop {
		d.await("started", 20*time.Second)
		d.signal(unix.SIGTERM)
	}
	if code := d.wait(20 * time.Second); code != -1 {
		b.t.Fatalf("%s: exit code %d\n%s", at, code, d.stderr.String())
	}
}

// finish lets a last daemon deliver, and looks at what arrived.
func (b *blocked) finish() {
	b.t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", b.port))
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	arrived := make(chan []byte, 1)
	go func() { // ends with the connection, which the daemon closes
		c, err := l.Accept()
		if err != nil {
			arrived <- nil
			return
		}
		defer c.Close()
		text, _ := io.ReadAll(c)
		arrived <- text
	}()
	b.unblock()
	d := runDaemon(b.t, b.dir)
	d.stop()
	wantAll(b.t, readGzip(b.t, b.path("blocked/f.gz")), "s", b.sent)
	wantAll(b.t, readGzip(b.t, b.path("free.gz")), "s", b.sent)
	l.Close()
	if text := <-arrived; bytes.Count(text, []byte("\n")) < b.sent {
		b.t.Errorf("the remote has %d lines, want %d at least", bytes.Count(text, []byte("\n")), b.sent)
	}
	if left, _ := filepath.Glob(b.path("state", "*")); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
}

// unblock makes the folder of the file possible.
func (b *blocked) unblock() {
	if stat, err := os.Stat(b.path("blocked")); err == nil && !stat.IsDir() {
		os.Remove(b.path("blocked"))
	}
}

// A stop that a dead remote draws out is cut short by KILL, as by docker stop.
func TestKillWhileStopping(t *testing.T) {
	b := newBlocked(t, "1m")
	b.signal(unix.SIGTERM)
	b.await("stopping", 10*time.Second)
	time.Sleep(rand.N(200 * time.Millisecond)) // a random moment of it
	killAndWait(b.process)
	b.finish()
}

// A stop that cannot deliver is killed while it saves, and what it was saving
// is not lost, whole or not, and not delivered twice.
func TestKillWhileSaving(t *testing.T) {
	b := newBlocked(t, "300ms")
	killAndWait(b.process)
	for _, at := range []string{"save:1", "save:3", "saved:1", "save:30", "saved:1"} {
		b.rerun(at, true)
	}
	if left := arenas(t, b.path("state")); len(left) == 0 {
		t.Error("nothing was saved")
	}
	b.finish()
}

// A start is killed while it takes up what was left behind, again and again.
func TestKillWhileReplaying(t *testing.T) {
	b := newBlocked(t, "20s")
	killAndWait(b.process)
	for _, at := range []string{"adopt:1", "shrink:1", "adopt:7", "adopt:40"} {
		b.rerun(at, false)
	}
	b.unblock()
	for _, at := range []string{"intent:2", "write:1", "release:3", "intent:1", "release:2", "write:3", "adopt:20"} {
		b.rerun(at, false)
	}
	b.finish()
}

// A batch that was in its file already when the daemon was killed is not given
// out once more, in a file of its own, because its sink is gone.
func TestSinkIsGoneAfterWrite(t *testing.T) {
	b := newBlocked(t, "1s")
	killAndWait(b.process)
	b.unblock()
	for _, at := range []string{"write:1", "write:2"} {
		b.rerun(at, false)
	}
	conf, err := os.ReadFile(b.path("conf.toml"))
	if err != nil {
		t.Fatal(err)
	}
	configure(t, b.dir, strings.NewReplacer(`"f"`, `"other"`, "[sink.f]", "[sink.other]", `"blocked/f.gz"`, `"other.gz"`).Replace(string(conf)))
	d := runDaemon(t, b.dir)
	d.await("not in the config", 10*time.Second)
	d.signal(unix.SIGTERM)
	d.stopped(3) // because of the remote
	text := append(readGzip(t, b.path("blocked/f.gz")), []byte(recoveredText(t, b.path("state"), "f"))...)
	wantAll(t, text, "s", b.sent)
}
