package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shell runs a script in a folder, with the binary in $logboom, and returns
// its exit code and output.
func shell(t *testing.T, dir, script string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "logboom="+logboom(t))
	if strings.Contains(script, "$logboom pipe") || strings.Contains(script, "$logboom exec") {
		cmd.Env = append(cmd.Env, plainFolders(t.TempDir())...)
	}
	var out output
	cmd.Stdout = &out
	p := spawn(t, cmd)
	return p.wait(20 * time.Second), out.String(), p.stderr.String()
}

// What the commands that need no daemon do: files named are of the folder that
// the script runs in, and hold what is said afterwards.
func TestCommands(t *testing.T) {
	long := strings.Repeat("x", 70000)
	tests := []struct {
		name   string
		script string
		code   int
		stdout string
		stderr string // is part of it; "" is nothing
		file   string // the text of the file "out.gz", or "out" where it ends so
	}{
		{"pipe", `printf 'a\nb\n' | $logboom pipe --to out.gz`, 0, "", "", "a\nb\n"},
		{"pipe, no final LF", `printf 'a\nlast words' | $logboom pipe --to out.gz`, 0, "", "", "a\nlast words\n"}, // PI12
		{"pipe of both streams", `{ echo o; echo e >&2; } 2>&1 | $logboom pipe --to out.gz`, 0, "", "", "o\ne\n"},
		{"pipe appends", `for i in 1 2 3; do echo $i | $logboom pipe --to out.gz || exit; done`, 0, "", "", "1\n2\n3\n"},
		{"pipe of long lines", `printf 'before\n` + long + `\nafter\n' | $logboom pipe --to out.gz`, 0, "", "", "before\n" + long + "\nafter\n"}, // PI09
		{"pipe keeps every byte", `printf 'a\000b\tc\r\n\n\377\n' | $logboom pipe --to out.gz`, 0, "", "", "a\x00b\tc\r\n\n\xff\n"},
		{"pipe of nothing leaves no file", `$logboom pipe --to out.gz </dev/null; ls`, 0, "", "", ""}, // GZ06
		{"pipe with marks of time", `echo a | $logboom pipe --to logs/%Y/out-%j.log; cat logs/2[0-9]*/out-[0-3][0-9][0-9].log`, 0, "a\n", "", ""},
		{"pipe with a variable", `printf 'x 1\ny 2\nx 3\n' | $logboom pipe --to '$1-100%%.log'; cat x-100%.log y-100%.log`, 0, "x 1\nx 3\ny 2\n", "", ""},
		{"exec with marks of time", `$logboom exec --to out-%Y.log -- echo a; cat out-2[0-9][0-9][0-9].log`, 0, "a\n", "", ""},
		{"pipe to standard output", `echo a | $logboom pipe --to /dev/stdout`, 0, "a\n", "", ""},
		{"pipe into a pipe", `yes | head -100000 | $logboom pipe --to /dev/stdout | sort | uniq -c | tr -d ' '`, 0, "100000y\n", "", ""},
		{"pipe without --to", `echo a | $logboom pipe`, exitUsage, "", "--to", ""},
		{"exec", `$logboom exec --to out.gz -- sh -c 'echo a >&2; echo b >&2'`, 0, "", "", "a\nb\n"},
		{"exec's status", `$logboom exec --to out.gz -- sh -c 'echo a; exit 7'`, 7, "", "", "a\n"},
		{"exec, killed", `$logboom exec --to out.gz -- sh -c 'echo a; kill -KILL $$'`, 128 + 9, "", "", "a\n"},
		{"exec, no final LF", `$logboom exec --to out.gz -- printf 'a\nlast words'`, 0, "", "", "a\nlast words\n"},
		{"exec's standard input", `echo a | $logboom exec --to out.gz -- cat`, 0, "", "", "a\n"},
		{"exec of a crash", `$logboom exec --to out.gz -- sh -c 'yes | head -10000; exit 1'`, 1, "", "", strings.Repeat("y\n", 10000)}, // PI13
		{"exec with flags of the command", `$logboom exec --to out.gz -- echo --to`, 0, "", "", "--to\n"},
		{"exec of what is not there", `$logboom exec --to out.gz -- ./none`, exitFailed, "", "./none", ""},
		{"check", `printf '[source.a]\ntype="stdin"\nsinks=["b"]\n[sink.b]\ntype="stdout"\n' >conf.toml; $logboom check`, 0, "conf.toml: ok\n", "", ""},
		{"check, broken", `printf '[source.a]\ntype="stdin"\nsinks=["c"]\n' >conf.toml; $logboom check`, exitUsage, "", "conf.toml:3: source.a.sinks", ""},
		{"run, broken", `printf '[batch]\nflush = 1\n' >conf.toml; $logboom run`, exitUsage, "", "conf.toml:2: batch.flush", ""},
		{"status without a daemon", `printf 'runtime_dir="run"\n[source.a]\ntype="stdin"\nsinks=["b"]\n[sink.b]\ntype="stdout"\n' >conf.toml; $logboom status`, exitFailed, "", "run", ""},
		{"no such command", `$logboom rnu`, exitUsage, "", "rnu", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			code, stdout, stderr := shell(t, dir, tt.script)
			if code != tt.code || stdout != tt.stdout || !strings.Contains(stderr, tt.stderr) || (stderr == "") != (tt.stderr == "") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			path := filepath.Join(dir, "out.gz")
			if _, err := os.Stat(path); err != nil {
				if tt.file != "" {
					t.Error(err)
				}
				return
			}
			if text := readGzip(t, path); string(text) != tt.file {
				t.Errorf("the file holds %d bytes, want %d: %.200q", len(text), len(tt.file), text)
			}
		})
	}
}

// A signal goes to the command, which says when it is over.
func TestExecPassesSignals(t *testing.T) {
	unignoreHUP(t)
	path := filepath.Join(t.TempDir(), "out.gz")
	script := `for s in HUP INT USR1 TERM; do trap "echo $s" $s; done
		trap 'echo QUIT; exit 3' QUIT; echo ready; while :; do sleep 0.01; done`
	p := spawn(t, plainCommand(t, t.TempDir(), "exec", "--to", path, "--flush", "10ms", "--", "sh", "-c", script))
	want := "ready\n"
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGUSR1, unix.SIGTERM, unix.SIGQUIT} {
		eventually(t, 5*time.Second, want, func() bool {
			f, err := os.Open(path)
			if err != nil {
				return false
			}
			defer f.Close()
			text, err := inflate(f)
			return err == nil && string(text) == want
		})
		p.signal(s)
		want += strings.TrimPrefix(unix.SignalName(s), "SIG") + "\n"
	}
	if code := p.wait(5 * time.Second); code != 3 {
		t.Errorf("exit code %d, want the command's 3", code)
	}
	if text := readGzip(t, path); string(text) != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// unignoreHUP has what a test runs not ignore SIGHUP, where the test itself was
// started to.
func unignoreHUP(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
}

// A signal that comes as soon as the command runs is not lost.
func TestExecPassesFirstSignal(t *testing.T) {
	unignoreHUP(t)
	script := `trap 'exit 7' HUP; kill -HUP $PPID; i=0; while [ $i -lt 500 ]; do sleep 0.01; i=$((i+1)); done`
	for range 30 {
		p := spawn(t, plainCommand(t, t.TempDir(), "exec", "--to", filepath.Join(t.TempDir(), "out"), "--", "sh", "-c", script))
		if code := p.wait(20 * time.Second); code != 7 {
			t.Fatalf("exit code %d, want the trap's 7", code)
		}
	}
}

// A pipe is told to stop: what was written to it until then is in the file.
func TestPipeStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.gz")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd := plainCommand(t, t.TempDir(), "pipe", "--to", path)
	cmd.Stdin = r
	p := spawn(t, cmd)
	s := send("pipe", 20000, toStream(w))
	eventually(t, 5*time.Second, "the file begins", func() bool {
		stat, err := os.Stat(path)
		return err == nil && stat.Size() > 0
	})
	sent := s.halt()
	p.signal(unix.SIGTERM)
	if code := p.wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	wantAll(t, readGzip(t, path), "pipe", sent)
}

// gramConf is a unix datagram socket into a file.
const gramConf = prelude + `
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
sinks = ["file"]
[sink.file]
type = "file"
path = "all.gz"
flush = "100ms"
`

// A kill leaves the socket's file and the lock behind, which are in nobody's
// way; what a kill leaves in a file is whole.
func TestStartAfterKill(t *testing.T) { // U06, GZ01
	d := startDaemon(t, gramConf)
	s := send("in", 5000, toDatagrams(t, "unixgram", d.path("in.sock")))
	d.received(2000)
	d.signal(unix.SIGKILL)
	d.wait(5 * time.Second)
	s.halt()
	before := wantInOrder(t, readGzip(t, d.path("all.gz")), "in")
	if before == 0 {
		t.Error("nothing was in the file before the kill")
	}
	begin := time.Now()
	next := runDaemon(t, d.dir)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the start took %v", took)
	}
	if err := toDatagrams(t, "unixgram", d.path("in.sock"))(numbered(nil, "after", 0)); err != nil {
		t.Fatal(err)
	}
	next.received(1)
	next.stop()
	wantAll(t, readGzip(t, d.path("all.gz")), "after", 1)
	if _, err := os.Stat(d.path("in.sock")); err == nil {
		t.Error("a clean stop has left the socket's file behind")
	}
}

// wantNoStart runs a config that cannot be had, and returns what the daemon says.
func wantNoStart(t *testing.T, dir string) string {
	t.Helper()
	p := spawn(t, exec.Command(logboom(t), "run", "-c", filepath.Join(dir, "conf.toml")))
	if code := p.wait(10 * time.Second); code != exitFailed {
		t.Fatalf("exit code %d, want %d\n%s", code, exitFailed, p.stderr.String())
	}
	return p.stderr.String()
}

func TestSocketPathIsAFile(t *testing.T) { // U06
	dir := t.TempDir()
	configure(t, dir, gramConf)
	path := filepath.Join(dir, "in.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := wantNoStart(t, dir); !strings.Contains(said, path) {
		t.Errorf("the path is not named: %s", said)
	}
	if text := readFile(t, path); string(text) != "precious" {
		t.Errorf("the file holds %q now", text)
	}
}

func TestTwoDaemons(t *testing.T) {
	d := startDaemon(t, gramConf)
	other := t.TempDir()
	configure(t, other, fill(gramConf, `"run"`, fmt.Sprintf("%q", d.path("run"))))
	if said := wantNoStart(t, other); !strings.Contains(said, "another logboom runs there") {
		t.Errorf("said %q", said)
	}
	if err := toDatagrams(t, "unixgram", d.path("in.sock"))(numbered(nil, "in", 0)); err != nil {
		t.Fatal(err)
	}
	d.received(1)
	wantSums(t, d.stop(), 1)
}

// The daemon's own log goes to a pipe that nobody reads: it keeps running, and
// counts what it could not say.
func TestOwnLogIsClosed(t *testing.T) { // PI22
	dir := t.TempDir()
	configure(t, dir, gramConf)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.Command(logboom(t), "run", "-c", filepath.Join(dir, "conf.toml"))
	cmd.Stderr = w
	d := &instance{process: spawn(t, cmd), dir: dir}
	eventually(t, 5*time.Second, "the daemon answers", func() bool {
		_, err := askDaemon(d.path("run"), "/readyz")
		return err == nil
	})
	r.Close()
	for range 10 {
		d.signal(unix.SIGUSR2) // says something
	}
	eventually(t, 5*time.Second, "lines of the own log are lost", func() bool {
		return bytes.Contains(d.ask("/metrics"), []byte("logboom_log_lost_total ")) && !bytes.Contains(d.ask("/metrics"), []byte("logboom_log_lost_total 0\n"))
	})
	if err := toDatagrams(t, "unixgram", d.path("in.sock"))(numbered(nil, "in", 0)); err != nil {
		t.Fatal(err)
	}
	d.received(1)
	d.signal(unix.SIGTERM)
	if code := d.wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantAll(t, readGzip(t, d.path("all.gz")), "in", 1)
}

// A sink on standard output whose reader goes away holds nothing else up.
func TestStandardOutputIsClosed(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, fill(gramConf, `"20s"`, `"500ms"`, `["file"]`, `["file", "console"]`)+
		"[sink.console]\ntype = \"stdout\"\nflush = \"10ms\"\n",
		func(cmd *exec.Cmd) { cmd.Stdout = w })
	w.Close()
	r.Close()
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	for n := range 100 {
		if err := write(numbered(nil, "in", n)); err != nil {
			t.Fatal(err)
		}
	}
	d.await("messages lost", 5*time.Second)
	eventually(t, 5*time.Second, "the file gets all", func() bool { return d.status().Sinks["file"].Delivered == 100 })
	d.signal(unix.SIGTERM)
	got := d.stopped(0)
	if want := (sums{received: 100, delivered: 100, lost: 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	wantAll(t, readGzip(t, d.path("all.gz")), "in", 100)
}

// A daemon that is killed while a program runs: the program notices at its
// next line, and the next daemon starts its own.
func TestKillWithProgram(t *testing.T) {
	dir := t.TempDir()
	configure(t, dir, prelude+`
[program.ticker]
command = ["sh", "-c", "echo $$; while sleep 0.01; do echo tick || exit; done"]
sinks = ["file"]
[sink.file]
type = "file"
path = "all.log"
flush = "10ms"
`)
	var pids []int
	for range 2 {
		d := runDaemon(t, dir)
		d.received(10)
		program := d.status().Programs["ticker"]
		if program.State != "RUNNING" && program.State != "STARTING" || program.PID == 0 {
			t.Errorf("%+v", program)
		}
		pids = append(pids, program.PID)
		d.signal(unix.SIGKILL)
		d.wait(5 * time.Second)
	}
	for _, pid := range pids {
		eventually(t, 5*time.Second, "the program has ended", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || bytes.Contains(stat, []byte(") Z "))
		})
	}
	d := runDaemon(t, dir)
	d.received(10)
	d.stop()
	if text := readFile(t, d.path("all.log")); !bytes.HasSuffix(text, []byte("tick\n")) {
		t.Errorf("the file ends on %q", text[max(0, len(text)-20):])
	}
}

// A reader of standard output that is gone ends pipe, as it ends any filter.
func TestPipeReaderGone(t *testing.T) {
	cmd := exec.Command("sh", "-c", `yes | "$0" pipe --to /dev/stdout --flush 10ms | head -n 1`, logboom(t))
	cmd.Env = plainFolders(t.TempDir())
	ended := make(chan error, 1)
	go func() {
		out, err := cmd.Output()
		if err == nil && string(out) != "y\n" {
			err = fmt.Errorf("got %q", out)
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		cmd.Process.Kill()
		t.Error("it goes on")
	}
}

// What nohup has ignored stays so, for the command of exec too.
func TestIgnoredSignals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.log")
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$0" exec --to "$1" -- grep SigIgn /proc/self/status`, logboom(t), path)
	cmd.Env = plainFolders(t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(readFile(t, path))); !strings.HasSuffix(got, "1") {
		t.Errorf("HUP is not ignored: %s", got)
	}
}
