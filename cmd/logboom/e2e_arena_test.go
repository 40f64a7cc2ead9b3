package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plainCommand runs pipe, exec or recover with folders of the test's own.
func plainCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(logboom(t), args...)
	cmd.Env = plainFolders(dir)
	return cmd
}

// plainFolders is the environment with a folder of the test's own for what pipe
// and exec keep.
func plainFolders(dir string) []string {
	return append(os.Environ(), "RUNTIME_DIRECTORY="+dir+"/run", "STATE_DIRECTORY="+dir+"/state")
}

// fedPipe starts `logboom pipe` and waits until it has taken some lines out of
// its pipe, none of which it writes before it is full.
func fedPipe(t *testing.T, dir, to, text string) *process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	t.Cleanup(func() { w.Close() })
	cmd := plainCommand(t, dir, "pipe", "--to", to, "--flush", "1h")
	cmd.Stdin = r
	p := spawn(t, cmd)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the pipe is empty", func() bool {
		n, err := unix.IoctlGetInt(int(w.Fd()), unix.TIOCINQ)
		return err == nil && n == 0
	})
	return p
}

func killAndWait(p *process) {
	p.t.Helper()
	p.signal(unix.SIGKILL)
	p.wait(5 * time.Second)
}

// arenas are those in a folder.
func arenas(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "arena-*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// What pipes had in memory that were killed is delivered by recover: a line
// without its end too.
func TestRecoverPipes(t *testing.T) {
	dir := tmpfsDir(t)
	a := fedPipe(t, dir, dir+"/a.log.gz", "a 1\na 2\nlast")
	b := fedPipe(t, dir, dir+"/b.log", "b 1\nb 2\n")
	alive := fedPipe(t, dir, dir+"/c.log", "c 1\n")
	if got := arenas(t, dir+"/run/pipe"); len(got) != 3 {
		t.Fatalf("%v, want three arenas side by side", got)
	}
	killAndWait(a)
	killAndWait(b)
	out, err := plainCommand(t, dir, "recover", dir+"/run/pipe").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := string(readGzip(t, dir+"/a.log.gz")); got != "a 1\na 2\nlast\n" {
		t.Errorf("a: %q\n%s", got, out)
	}
	if got, err := os.ReadFile(dir + "/b.log"); string(got) != "b 1\nb 2\n" || err != nil {
		t.Errorf("b: %q, %v\n%s", got, err, out)
	}
	if got := arenas(t, dir+"/run/pipe"); len(got) != 1 {
		t.Errorf("%v, want that of the one that runs", got)
	}
	alive.signal(unix.SIGTERM)
	if code := alive.wait(5 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got, err := os.ReadFile(dir + "/c.log"); string(got) != "c 1\n" || err != nil {
		t.Errorf("c: %q, %v", got, err)
	}
	if got := arenas(t, dir+"/run/pipe"); len(got) != 0 {
		t.Errorf("%v, want none", got)
	}
}

// The next pipe into the same file writes what the one before it had.
func TestPipeTakesUp(t *testing.T) {
	dir := tmpfsDir(t)
	killAndWait(fedPipe(t, dir, dir+"/a.log", "1\n2\n"))
	killAndWait(fedPipe(t, dir, dir+"/a.log", "3\n"))
	next := plainCommand(t, dir, "pipe", "--to", dir+"/a.log")
	next.Stdin = strings.NewReader("4\n")
	if out, err := next.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := os.ReadFile(dir + "/a.log"); string(got) != "1\n2\n3\n4\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// recover knows the files of a daemon's batches without its config.
func TestRecoverDaemon(t *testing.T) {
	d := startDaemon(t, prelude+`
[batch]
flush = "1h"
[source.s]
type = "syslog"
listen = "unixgram://s.sock"
sinks = ["f", "remote"]
[sink.f]
type = "file"
path = "log/$program.gz"
[sink.remote]
type = "syslog"
targets = ["tcp://127.0.0.1:1"]
`)
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	for _, program := range []string{"one", "two"} {
		write([]byte("<13>Oct  1 10:00:00 h " + program + ": hello\n"))
	}
	d.received(2)
	killAndWait(d.process)
	dir := tmpfsDir(t)
	cmd := plainCommand(t, dir, "recover", d.path("run"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, program := range []string{"one", "two"} {
		if got := string(readGzip(t, d.path("log", program+".gz"))); got != "hello\n" {
			t.Errorf("%s: %q\n%s", program, got, out)
		}
	}
	if got := recoveredText(t, dir+"/state", "remote"); !strings.Contains(got, "one - - - hello\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("of the remote: %q", got)
	}
}

// recoveredText is what the file holds that was made for a sink that is gone.
func recoveredText(t *testing.T, dir, name string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "recovered-"+name+"-*.log.gz"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v: want one file", paths, err)
	}
	return string(readGzip(t, paths[0]))
}

const arenaConf = prelude + `
[batch]
flush = "1h"
[source.s]
type = "syslog"
listen = "unixgram://s.sock"
sinks = ["SINK"]
[sink.SINK]
type = "file"
path = "log/SINK.gz"
`

// Batches of a sink that is no longer there go to a file of their own, and it
// is said.
func TestSinkIsGone(t *testing.T) {
	d := startDaemon(t, fill(arenaConf, "SINK", "old"))
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	write([]byte("hello\n"))
	d.received(1)
	killAndWait(d.process)
	configure(t, d.dir, fill(arenaConf, "SINK", "new"))
	d = runDaemon(t, d.dir)
	d.await("not in the config", 5*time.Second)
	d.stop()
	if got := recoveredText(t, d.path("state"), "old"); got != "hello\n" {
		t.Errorf("%q", got)
	}
}

// What is no arena, or a damaged one, holds up no start and is kept.
func TestDamagedArena(t *testing.T) {
	d := startDaemon(t, fill(arenaConf, "SINK", "f"))
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	write([]byte("hello\n"))
	d.received(1)
	killAndWait(d.process)
	paths := arenas(t, d.path("run"))
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path("run/arena-cut"), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	d = runDaemon(t, d.dir)
	d.stop()
	if got := string(readGzip(t, d.path("log/f.gz"))); got != "hello\n" {
		t.Errorf("%q", got)
	}
	if kept, _ := filepath.Glob(d.path("state/damaged-arena-cut-*")); len(kept) != 1 {
		t.Errorf("%v, want one that was kept", kept)
	}
	if got := arenas(t, d.path("run")); len(got) != 0 {
		t.Errorf("%v is left", got)
	}
}

// A stop that cannot deliver saves, and exits with 3; starts deliver or save
// again.
func TestSaveAtStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	conf := strings.Replace(prelude, `"20s"`, `"500ms"`, 1) + fmt.Sprintf(`
[source.s]
type = "syslog"
listen = "unixgram://s.sock"
sinks = ["remote"]
[sink.remote]
type = "syslog"
targets = ["tcp://%s"]
format = "raw"
`, address)
	d := startDaemon(t, conf)
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	write([]byte("hello\n"))
	d.received(1)
	for i := range 2 {
		d.signal(unix.SIGTERM)
		if got := d.stopped(3); got.undelivered != 1 {
			t.Errorf("stop %d: %+v", i, got)
		}
		if got := arenas(t, d.path("state")); len(got) != 1 || len(arenas(t, d.path("run"))) != 0 {
			t.Fatalf("stop %d: %v saved, want one", i, got)
		}
		os.RemoveAll(d.path("run")) // as a reboot does
		if i == 0 {
			d = runDaemon(t, d.dir)
		}
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d = runDaemon(t, d.dir)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text := make([]byte, 6)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, text); err != nil || string(text) != "hello\n" {
		t.Errorf("%q, %v", text, err)
	}
	d.stop()
	if got := arenas(t, d.path("state")); len(got) != 0 {
		t.Errorf("%v is left", got)
	}
}

// A second daemon on the same folder is kept out, and does no harm.
func TestSecondDaemon(t *testing.T) {
	d := startDaemon(t, fill(arenaConf, "SINK", "f"))
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	write([]byte("hello\n"))
	d.received(1)
	second := spawn(t, exec.Command(logboom(t), "run", "-c", d.path("conf.toml")))
	if code := second.wait(10 * time.Second); code != 1 {
		t.Errorf("exit code %d of a second daemon", code)
	}
	if got := arenas(t, d.path("run")); len(got) != 1 {
		t.Errorf("%v", got)
	}
	d.stop()
	if got := string(readGzip(t, d.path("log/f.gz"))); got != "hello\n" {
		t.Errorf("%q", got)
	}
}

// What a pipe's reader had received, and what cannot be understood any more, is
// kept aside, with a line in the log.
func TestDamagedWindowIsKept(t *testing.T) {
	const text = "half a line, whose window is damaged"
	dir := tmpfsDir(t)
	fifo := heldFIFO(t, filepath.Join(dir, "f"))
	configure(t, dir, prelude+`
[source.s]
type = "fifo"
path = "f"
partial_timeout = "1h"
sinks = ["f"]
[sink.f]
type = "file"
path = "log/f.log"
`)
	d := runDaemon(t, dir)
	if _, err := fifo.WriteString(text); err != nil {
		t.Fatal(err)
	}
	arena := arenas(t, d.path("run"))[0]
	eventually(t, 10*time.Second, "it is received", func() bool { return bytes.Contains(readFile(t, arena), []byte(text)) })
	killAndWait(d.process)
	memory := readFile(t, arena)
	head := memory[bytes.Index(memory, []byte(text))&^4095:]
	copy(head, "damage")
	if err := os.WriteFile(arena, memory, 0o600); err != nil {
		t.Fatal(err)
	}
	d = runDaemon(t, dir)
	kept, _ := d.await("what was being received when the daemon was killed cannot be taken up", 10*time.Second)["kept_in"].(string)
	if got := readFile(t, kept); !bytes.Contains(got, []byte(text)) {
		t.Errorf("%s: %d bytes without the text", kept, len(got))
	}
	d.stop()
}
