package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// behaviour is a program that supervisord and logboom run side by side, from
// one file: supervisord as it is, logboom as it imports it.
type behaviour struct {
	name    string
	script  string // $n is which run it is, from 1
	options string // besides command, startsecs=1 and the log files
	state   string // that both reach, in supervisord's words
	runs    int    // after which they do
	differs string // why logboom writes other bytes than supervisord; "": it does not
	want    string // the bytes then
}

var behaviours = []behaviour{
	{name: "exit-0", script: "echo run $n; sleep 1.3; exit 0", state: "EXITED", runs: 1},
	{name: "exit-1", script: "echo run $n; [ $n -lt 3 ] || exec sleep 300; sleep 1.3; exit 1", state: "RUNNING", runs: 3},
	{name: "exit-0-always", script: "echo run $n; [ $n -lt 3 ] || exec sleep 300; sleep 1.3; exit 0", options: "autorestart=true\n", state: "RUNNING", runs: 3},
	{name: "exit-1-never", script: "echo run $n; sleep 1.3; exit 1", options: "autorestart=false\n", state: "EXITED", runs: 1},
	{name: "exit-7-expected", script: "echo run $n; sleep 1.3; exit 7", options: "exitcodes=0,7\n", state: "EXITED", runs: 1},
	{name: "exits-at-once", script: "echo run $n; exit 0", options: "startretries=2\n", state: "FATAL", runs: 3},
	{name: "crashes-at-once", script: "echo run $n; kill -SEGV $$", options: "startretries=2\n", state: "FATAL", runs: 3},
	{name: "crash-loop", script: "echo run $n; [ $n -lt 4 ] || exec sleep 300; sleep 1.3; kill -SEGV $$", state: "RUNNING", runs: 4},
	{name: "not-started", script: "echo run $n", options: "autostart=false\n", state: "STOPPED", runs: 0},
	{name: "ignores-TERM", script: "trap '' TERM; echo up; while :; do sleep 0.1; done", options: "stopwaitsecs=1\n", state: "RUNNING", runs: 1},
	{name: "forks-and-exits", script: "sleep 300 & echo $! >$0.worker; echo gone; exit 0", options: "startsecs=0\n", state: "EXITED", runs: 1},
	{name: "closes-stdout", script: "echo before; exec >&-; echo after >&2; exec sleep 300", state: "RUNNING", runs: 1},
	{name: "long-line", script: "head -c 300000 /dev/zero | tr '\\0' x; echo; exec sleep 300", state: "RUNNING", runs: 1},
	{name: "no-LF", script: "printf 'a\\nlast words'; sleep 1.3; exit 0", state: "EXITED", runs: 1,
		differs: "a record is a whole line: the last one ends with LF too", want: "a\nlast words\n"},
	{name: "floods", script: "seq 300000 & seq 300000 >&2 & wait; exec sleep 300", state: "RUNNING", runs: 1},
	{name: "one-pipe", script: "echo out; echo err >&2; echo out; exec sleep 300", options: "redirect_stderr=true\n", state: "RUNNING", runs: 1},
	{name: "worker", script: "trap '' TERM; (trap '' TERM; exec sleep 300) & echo $! >$0.worker; echo up; while :; do sleep 0.1; done",
		options: "stopwaitsecs=1\n", state: "RUNNING", runs: 1},
}

// writeBehaviours makes a folder with the scripts, and the file of both.
func writeBehaviours(t *testing.T) (dir, ini string) {
	dir = t.TempDir()
	text := fmt.Sprintf("[supervisord]\nlogfile=%s/supervisord.log\npidfile=%s/pid\n", dir, dir) +
		fmt.Sprintf("[unix_http_server]\nfile=%s/sock\n[supervisorctl]\nserverurl=unix://%s/sock\n", dir, dir) +
		"[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
	if os.Getuid() == 0 {
		text = strings.Replace(text, "\n", "\nuser=root\n", 1)
	}
	for _, b := range behaviours {
		script := filepath.Join(dir, b.name)
		count := "n=$(($(cat $0.runs 2>/dev/null)+1)); echo $n >$0.runs\n"
		if err := os.WriteFile(script, []byte(count+b.script+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("[program:%s]\ncommand=/bin/sh %s\nstdout_logfile=%s.out\nstderr_logfile=%s.err\n%s", b.name, script, script, script, b.options)
	}
	ini = filepath.Join(dir, "supervisord.conf")
	if err := os.WriteFile(ini, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, ini
}

// worker is the pid that a script left in a file.
func worker(t *testing.T, dir, name string) (pid int) {
	t.Helper()
	fmt.Sscan(string(readFile(t, filepath.Join(dir, name+".worker"))), &pid)
	return pid
}

// Debian's supervisord and logboom run the same programs from the same file.
// Where they differ on purpose is said here and in docs/supervisord.md.
func TestSideBySideWithSupervisord(t *testing.T) {
	need(t, "supervisord", "supervisorctl")
	theirs, theirINI := writeBehaviours(t)
	supervisord := spawn(t, exec.Command("supervisord", "-n", "-c", theirINI))
	ctl := func(args ...string) string {
		out, _ := exec.Command("supervisorctl", append([]string{"-c", theirINI}, args...)...).Output() // its exit code tells of states
		return string(out)
	}

	ours, ourINI := writeBehaviours(t)
	imported, err := importSupervisor(ourINI)
	if err != nil {
		t.Fatal(err)
	}
	configure(t, ours, prelude+"[batch]\nflush = \"50ms\"\n"+string(imported))
	d := runDaemon(t, ours)
	t.Cleanup(func() { // what supervisord leaves behind
		for _, dir := range []string{theirs, ours} {
			for _, name := range []string{"worker", "forks-and-exits"} {
				unix.Kill(worker(t, dir, name), unix.SIGKILL)
			}
		}
	})

	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		status, waiting := ctl("status"), ""
		for _, b := range behaviours {
			their := strings.Fields(lineOf(status, b.name) + "? ?")[1]
			our := d.state(b.name)
			if their != b.state || our != b.state || runsOf(theirs, b) != b.runs || runsOf(ours, b) != b.runs {
				waiting += fmt.Sprintf("%s: %s after %d runs, ours %s after %d, want %s after %d\n",
					b.name, their, runsOf(theirs, b), our, runsOf(ours, b), b.state, b.runs)
			}
		}
		if waiting == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all are where they should end:\n%s", waiting)
		}
	}
	for _, b := range behaviours {
		for _, stream := range []string{".out", ".err"} {
			compareStreams(t, b, filepath.Join(theirs, b.name+stream), filepath.Join(ours, b.name+stream))
		}
	}

	// Stop: both end a program that ignores TERM by KILL.
	for _, name := range []string{"ignores-TERM", "worker"} {
		theirOut := ctl("stop", name)
		d.wantCtl(0, theirOut[:strings.Index(theirOut, ":")]+": stopped\n", "", "stop", name)
		if d.state(name) != "STOPPED" || !strings.Contains(ctl("status", name), "STOPPED") {
			t.Errorf("%s: %s, theirs %q", name, d.state(name), ctl("status", name))
		}
	}
	// On purpose: KILL goes to the whole group, and no worker is left behind.
	if gone(worker(t, theirs, "worker")) || !gone(worker(t, ours, "worker")) {
		t.Error("supervisord left no worker behind, or we did")
	}
	d.stop()
	ctl("shutdown")
	supervisord.wait(30 * time.Second) // or its programs would outlive it
}

// lineOf is the line of a text that begins with a word.
func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word+" ") {
			return line
		}
	}
	return ""
}

// runsOf is how often a script has been started.
func runsOf(dir string, b behaviour) (n int) {
	text, _ := os.ReadFile(filepath.Join(dir, b.name+".runs"))
	fmt.Sscan(string(text), &n)
	return n
}

// compareStreams compares what both have written of one stream. Supervisord
// makes the file of a stream that stays silent, logboom does not.
func compareStreams(t *testing.T, b behaviour, theirs, ours string) {
	t.Helper()
	want, _ := os.ReadFile(theirs)
	var got []byte
	if b.differs != "" && strings.HasSuffix(ours, ".out") {
		if string(want) == b.want {
			t.Errorf("%s: supervisord does not differ: %s", b.name, b.differs)
		}
		want = []byte(b.want)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, _ = os.ReadFile(ours)
		if bytes.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %d bytes, want %d: %.60q, want %.60q", ours, len(got), len(want), got, want)
			return
		}
		if b.differs == "" { // theirs may still be coming
			want, _ = os.ReadFile(theirs)
		}
	}
}

// 200 programs that crash at once leave nothing behind, and cost little.
func TestManyCrashLoops(t *testing.T) {
	d := startDaemon(t, prelude+`
[program.crash]
command = "sh -c 'exit 1'"
numprocs = 200
startretries = -1
sinks = ["out"]
`+plainSink)
	restarts := func() (sum int) {
		for _, p := range d.status().Programs {
			sum += p.Restarts
		}
		return sum
	}
	eventually(t, 60*time.Second, "each has crashed twice", func() bool { return restarts() >= 400 })
	descriptors, before, cpu := d.descriptors(), restarts(), d.cpu()
	begin := time.Now()
	for restarts() < before+400 && time.Since(begin) < 60*time.Second {
		time.Sleep(500 * time.Millisecond) // seldom: to ask is no small part of the work
	}
	took, used := time.Since(begin), d.cpu()-cpu
	t.Logf("%d restarts in %v took %v of a core: %.1f %%", restarts()-before, took.Round(time.Millisecond), used, 100*used.Seconds()/took.Seconds())
	// Those that are just being started have two pipes and a pidfd.
	eventually(t, 20*time.Second, "as many descriptors as before", func() bool { return d.descriptors() <= descriptors+2 })
	eventually(t, 20*time.Second, "no zombie", func() bool {
		out, _ := exec.Command("ps", "-o", "stat=", "--ppid", fmt.Sprint(d.pid())).Output()
		return !strings.Contains(string(out), "Z")
	})
	d.stop()
}

// cpu is the processor time that a process has used, without its children.
func (p *process) cpu() time.Duration {
	p.t.Helper()
	text := string(readFile(p.t, fmt.Sprintf("/proc/%d/stat", p.pid())))
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	var user, system int64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}
