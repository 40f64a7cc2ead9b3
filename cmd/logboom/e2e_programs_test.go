package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plainSink writes what the programs of a test say to one file at once.
const plainSink = `
[sink.out]
type = "file"
path = "out.log"
flush = "10ms"
`

// ctl runs a command of the binary for a daemon and returns its exit code and
// what it wrote.
func (d *instance) ctl(args ...string) (code int, stdout, stderr string) {
	d.t.Helper()
	var out, errs strings.Builder
	cmd := exec.Command(logboom(d.t), append(args, "-c", d.path("conf.toml"))...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run() // what it says is in ProcessState
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// wantCtl checks all that a command says, its lines in any order.
func (d *instance) wantCtl(code int, stdout, stderr string, args ...string) {
	d.t.Helper()
	gotCode, gotOut, gotErr := d.ctl(args...)
	if gotCode != code || !slices.Equal(sorted([]byte(gotOut)), sorted([]byte(stdout))) || !strings.Contains(gotErr, stderr) || (stderr == "") != (gotErr == "") {
		d.t.Errorf("logboom %s: exit %d\n%s%s\nwant %d\n%s%s", strings.Join(args, " "), gotCode, gotOut, gotErr, code, stdout, stderr)
	}
}

// state is where a process stands now.
func (d *instance) state(process string) string { return d.status().Programs[process].State }

func (d *instance) reaches(process, state string) {
	d.t.Helper()
	eventually(d.t, 10*time.Second, process+" "+state, func() bool { return d.state(process) == state })
}

// lines waits until a file holds so many lines and returns them all.
func (d *instance) lines(file string, n int) []string {
	d.t.Helper()
	var text string
	eventually(d.t, 10*time.Second, fmt.Sprintf("%d lines in %s", n, file), func() bool {
		data, _ := os.ReadFile(d.path(file))
		text = string(data)
		return strings.Count(text, "\n") >= n
	})
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// Several processes of one program, each with what its number makes of the
// settings, and the numbers that tell of them.
func TestProgramProcesses(t *testing.T) {
	d := startDaemon(t, prelude+`
[program.worker]
command = ["sh", "-c", 'echo %(process_num)02d $A $SUPERVISOR_ENABLED $SUPERVISOR_GROUP_NAME $SUPERVISOR_PROCESS_NAME "$(umask)" "$(pwd)"; exec sleep 300']
directory = "%(here)s/%(program_name)s"
environment = { A = "%(program_name)s-%(process_num)d-of-%(numprocs)d" }
numprocs = 2
numprocs_start = 7
umask = "0027"
startsecs = 0
sinks = ["out"]
`+plainSink, inFolder(t, "worker"))
	got := d.lines("out.log", 2)
	slices.Sort(got)
	for i, n := range []int{7, 8} {
		want := fmt.Sprintf("%02d worker-%d-of-2 1 worker worker_%02d 0027 %s", n, n, n, d.path("worker"))
		if got[i] != want {
			t.Errorf("%q, want %q", got[i], want)
		}
	}
	programs := d.status().Programs
	for _, name := range []string{"worker_07", "worker_08"} {
		if p := programs[name]; p.Program != "worker" || p.State != "RUNNING" || p.PID <= 0 {
			t.Errorf("%s: %+v", name, p)
		}
		if up := d.metric(fmt.Sprintf(`logboom_program_up{process="%s",program="worker"}`, name)); up != 1 {
			t.Errorf("%s: up %v", name, up)
		}
	}
	if len(programs) != 2 || d.metric("logboom_program_up{") != 2 {
		t.Errorf("%d processes", len(programs))
	}
	// The umask was the child's alone.
	if err := os.WriteFile(d.path("conf.toml"), []byte(prelude), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := string(readFile(t, fmt.Sprintf("/proc/%d/status", d.pid()))); !strings.Contains(text, "Umask:\t0022") && !strings.Contains(text, "Umask:\t0002") {
		t.Errorf("the daemon's own umask is not what it was:\n%s", text)
	}
	wantSums(t, d.stop(), 2)
}

// inFolder makes a folder beside the config before the daemon is run.
func inFolder(t *testing.T, name string) setting {
	return func(cmd *exec.Cmd) {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(cmd.Args[len(cmd.Args)-1]), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// copied gives the binary a name, for where the tests' /proc is not seen.
func copied(t *testing.T) setting {
	return func(cmd *exec.Cmd) {
		path := filepath.Join(t.TempDir(), "logboom")
		if err := os.WriteFile(path, readFile(t, cmd.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Args[0] = path, path
	}
}

// A program runs as its user with the groups of it; the daemon's are gone.
func TestProgramUser(t *testing.T) {
	needRoot(t, "it runs a program as another user")
	if _, err := exec.LookPath("id"); err != nil {
		t.Skip("id is not installed here")
	}
	want, err := exec.Command("id", "nobody").Output()
	if err != nil {
		t.Skip("there is no user nobody here")
	}
	d := startDaemon(t, prelude+"[program.id]\ncommand = \"id\"\ndirectory = \"/\"\nuser = \"nobody\"\nautorestart = false\nstartsecs = 0\nsinks = [\"out\"]\n"+plainSink)
	if got := d.lines("out.log", 1); got[0]+"\n" != string(want) {
		t.Errorf("%q, want %q", got[0], want)
	}
	d.stop()
}

// SU11: what goes before each line of several programs in one file.
func TestProgramPrefix(t *testing.T) {
	d := startDaemon(t, prelude+`
[program.a]
command = ["sh", "-c", "echo one; echo two >&2; exec sleep 300"]
prefix = "$time $program[$pid] $stream: "
sinks = ["out"]
[program.b]
command = ["sh", "-c", "echo three; exec sleep 300"]
prefix = "$$${process} "
sinks = ["out"]
`+plainSink)
	got := strings.Join(d.lines("out.log", 3), "\n")
	pid := d.status().Programs["a"].PID
	for _, want := range []string{fmt.Sprintf(" a[%d] stdout: one", pid), fmt.Sprintf(" a[%d] stderr: two", pid), "$b three"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, line := range strings.Split(got, "\n") {
		if word, _, _ := strings.Cut(line, " "); word != "$b" {
			if _, err := time.Parse("2006-01-02T15:04:05.000Z07:00", word); err != nil {
				t.Error(err)
			}
		}
	}
	wantSums(t, d.stop(), 3)
}

// Programs start by their priority and stop the other way round.
func TestProgramPriority(t *testing.T) {
	const program = `
[program.NAME]
command = ["sh", "-c", "trap 'echo NAME stops >>order; exit' TERM; echo NAME starts >>order; while :; do sleep 0.01; done"]
directory = "."
priority = PRIORITY
sinks = ["out"]
`
	conf := prelude
	for name, priority := range map[string]int{"first": -1, "second": 5, "third": 999} {
		conf += fill(program, "NAME", name, "PRIORITY", priority)
	}
	d := startDaemon(t, conf+plainSink)
	d.lines("order", 3)
	d.stop()
	got := d.lines("order", 6)
	if want := "third stops, second stops, first stops"; strings.Join(got[3:], ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	// Which of two processes is first to write is the kernel's to say: what
	// we say is which was forked first.
	var pids []float64
	for _, name := range []string{"first", "second", "third"} {
		for _, e := range d.entries("started") {
			if e["program"] == name {
				pids = append(pids, e["pid"].(float64))
			}
		}
	}
	if len(pids) != 3 || !slices.IsSorted(pids) {
		t.Errorf("pids in the order of priority: %v", pids)
	}
}

// What an operator orders is done when the command ends.
func TestControlPrograms(t *testing.T) {
	d := startDaemon(t, prelude+`
[program.worker]
command = ["sh", "-c", "trap 'sleep 0.3; exit' TERM; trap 'echo reloaded %(process_num)d' USR2; echo up; while :; do sleep 0.01; done"]
numprocs = 2
reload_signal = "USR2"
sinks = ["out"]
[program.web]
command = "sleep 300"
autostart = false
startsecs = 0
reload_command = ["sh", "-c", "echo $SUPERVISOR_PROCESS_NAME again; exit $(cat code)"]
directory = "."
sinks = ["out"]
[program.broken]
command = "false"
autostart = false
backoff = { min = "1m" }
sinks = ["out"]
`+plainSink)
	d.reaches("worker_01", "RUNNING")
	d.reaches("worker_00", "RUNNING")
	before := d.status().Programs

	d.wantCtl(0, "web: started\n", "", "start", "web")
	d.wantCtl(0, "web: already running\n", "", "start", "web")
	d.wantCtl(0, "worker_00: restarted\nworker_01: restarted\n", "", "restart", "worker:*")
	for _, name := range []string{"worker_00", "worker_01"} {
		after := d.status().Programs[name]
		if after.State != "RUNNING" || after.PID == before[name].PID || after.Restarts != 1 {
			t.Errorf("%s: %+v", name, after)
		}
	}
	d.wantCtl(0, "worker_00: stopped\n", "", "stop", "worker:worker_00")
	if d.state("worker_00") != "STOPPED" || d.state("worker_01") != "RUNNING" {
		t.Errorf("%+v", d.status().Programs)
	}
	d.wantCtl(0, "worker_00: not running\nworker_01: stopped\n", "", "stop", "worker")
	d.wantCtl(1, "", "broken: BACKOFF: exit status 1", "start", "broken")
	d.wantCtl(1, "worker_00: started\nworker_01: started\n", "nobody: no such program or process", "start", "nobody", "worker_00", "worker")
	d.wantCtl(2, "", "requires at least 1 arg", "start")

	d.wantCtl(0, "worker_00: sent SIGUSR2\nworker_01: sent SIGUSR2\n", "", "reload", "worker")
	d.lines("out.log", 8) // each was up three times, and reloaded
	for code, want := range map[int]string{0: "", 3: "web: reload_command: exit status 3\nweb again\n"} {
		if err := os.WriteFile(d.path("code"), fmt.Append(nil, code), 0o600); err != nil {
			t.Fatal(err)
		}
		if code == 0 {
			d.wantCtl(0, "web: reloaded\nweb again\n", "", "reload", "web")
		} else {
			d.wantCtl(1, "", want, "reload", "web")
		}
	}
	d.wantCtl(1, "", "broken: its program has neither reload_signal nor reload_command", "reload", "broken")

	d.wantCtl(0, "broken: stopped\nweb: stopped\nworker_00: stopped\nworker_01: stopped\n", "", "stop", "all")
	if info, err := os.Stat(d.path("run", "control.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control socket: %v, %v", info, err)
	}
	wantSums(t, d.stop(), 8)
	code, _, stderr := d.ctl("stop", "all")
	if code != 1 || !strings.Contains(stderr, "no daemon answers on "+d.path("run", "control.sock")) {
		t.Errorf("without a daemon: exit %d, %q", code, stderr)
	}
}

// Orders of several operators at a time, and reloads between them, are all
// answered, and whoever stops last finds everything stopped.
func TestControlAtOnce(t *testing.T) {
	conf := func(n int) string {
		return fmt.Sprintf(prelude+`
[program.worker]
command = "sleep 300"
startsecs = 0
sinks = ["out"]
[program.web]
command = "sleep 300"
depends_on = ["worker"]
startsecs = 0
stopwaitsecs = %d
sinks = ["out"]
[program.missing]
command = "./not-there-yet"
directory = "not there either"
startretries = 0
sinks = ["out"]
`+plainSink, n)
	}
	d := startDaemon(t, conf(10))
	d.reaches("web", "RUNNING")
	d.reaches("missing", "FATAL")
	d.wantCtl(1, "", fmt.Sprintf("missing: FATAL: directory %q: no such file or directory", d.path("not there either")), "start", "missing")
	var all sync.WaitGroup
	for operator := range 3 {
		all.Go(func() {
			for n := range 12 {
				verb := [...]string{"stop", "start", "restart"}[(n+operator)%3]
				name := [...]string{"worker", "web", "all"}[(n/3+operator)%3]
				if code, _, stderr := d.ctl(verb, name); code > 1 {
					t.Errorf("%s %s: exit %d, %s", verb, name, code, stderr)
				}
			}
		})
	}
	for n := range 4 {
		if err := os.WriteFile(d.path("new.toml"), []byte(conf(11+n%2)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d.path("new.toml"), d.path("conf.toml")); err != nil { // orders read it too
			t.Fatal(err)
		}
		d.wantCtl(0, "config: reloaded\n", "", "reload")
	}
	all.Wait()
	if code, _, stderr := d.ctl("stop", "all"); code != 0 {
		t.Error(stderr)
	}
	for _, name := range []string{"worker", "web"} {
		if state := d.state(name); state != "STOPPED" {
			t.Errorf("%s is %s", name, state)
		}
	}
	wantSums(t, d.stop(), 0)
}

// The config, files and batches are the daemon's own to reload, reopen and
// flush.
func TestControlDaemon(t *testing.T) {
	conf := prelude + `
[source.in]
type = "fifo"
path = "in.fifo"
sinks = ["out", "remote"]
[sink.out]
type = "file"
path = "out.log"
flush = "1h"
[sink.remote]
type = "syslog"
targets = ["tcp://127.0.0.1:1"]
flush = "1h"
`
	d := startDaemon(t, conf)
	fifo := openFIFO(t, d.path("in.fifo"))
	fmt.Fprintln(fifo, "one")
	eventually(t, 10*time.Second, "the line", func() bool { return d.status().Sinks["out"].Accepted == 1 })
	if code, stdout, stderr := d.ctl("flush"); code != 1 || stdout != "out: flushed\n" || !strings.Contains(stderr, "remote: 1 messages wait: ") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if text := string(readFile(t, d.path("out.log"))); text != "one\n" {
		t.Errorf("%q", text)
	}

	configure(t, d.dir, strings.ReplaceAll(conf, `, "remote"`, "")) // nothing feeds it
	d.wantCtl(2, "", "sink.remote: no source feeds this sink", "reload")
	conf = strings.ReplaceAll(conf[:strings.Index(conf, "[sink.remote]")], `, "remote"`, "")
	configure(t, d.dir, conf)
	d.wantCtl(0, "config: reloaded\n", "", "reload")
	fmt.Fprintln(fifo, "two")
	eventually(t, 10*time.Second, "the line", func() bool { return d.status().Sinks["out"].Accepted == 2 })
	if err := os.Rename(d.path("out.log"), d.path("old.log")); err != nil {
		t.Fatal(err)
	}
	d.wantCtl(0, "out: reopened\n", "", "reopen")
	fmt.Fprintln(fifo, "three")
	eventually(t, 10*time.Second, "the line", func() bool { return d.status().Sinks["out"].Accepted == 3 })
	d.wantCtl(0, "out: flushed\n", "", "flush")
	if old, fresh := string(readFile(t, d.path("old.log"))), string(readFile(t, d.path("out.log"))); old != "one\ntwo\n" || fresh != "three\n" {
		t.Errorf("old %q, new %q", old, fresh)
	}
	d.kill() // a stop would wait for the remote
}

// A daemon that is killed takes its programs with it at once, and what they
// leave behind is ended by the next one, before programs start.
func TestProgramsDieWithDaemon(t *testing.T) {
	conf := prelude + `
[program.app]
command = ["sh", "-c", "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $!; wait"]
stopwaitsecs = 1
sinks = ["out"]
` + plainSink
	d := startDaemon(t, conf)
	var worker int
	if _, err := fmt.Sscan(d.lines("out.log", 1)[0], &worker); err != nil {
		t.Fatal(err)
	}
	main := d.status().Programs["app"].PID
	d.signal(unix.SIGKILL)
	d.wait(10 * time.Second)
	eventually(t, 10*time.Second, "the program is gone", func() bool { return gone(main) })
	if gone(worker) {
		t.Fatal("the worker went with it: nothing is left to be ended")
	}
	next := runDaemon(t, d.dir)
	if !gone(worker) {
		t.Error("the worker still runs beside the new program")
	}
	if told := next.entries("ending what a killed daemon has left behind"); len(told) != 1 || told[0]["program"] != "app" {
		t.Errorf("told %v", told)
	}
	next.stop()
	if _, err := os.Stat(next.path("run", "groups.json")); !os.IsNotExist(err) {
		t.Errorf("the record after a clean stop: %v", err)
	}
}

// gone reports whether a process has ended; a zombie has.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	state := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
	return state == "Z" || state == "X"
}

// As process 1 of a container the daemon reaps what programs leave behind, and
// takes no status away from those who wait for one.
func TestProcessOneReapsOrphans(t *testing.T) {
	needRoot(t, "it makes a pid namespace")
	need(t, "unshare")
	if err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run(); err != nil {
		t.Skipf("a pid namespace cannot be made here: %v", err)
	}
	d := startDaemon(t, prelude+`
[program.forks]
command = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.0$i &) ; done; exit 7"]
exitcodes = [7]
autorestart = true
startsecs = 0
backoff = { min = "10ms", max = "10ms" }
sinks = ["out"]
`+plainSink, copied(t), behind("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
	eventually(t, 20*time.Second, "some runs", func() bool { return d.status().Programs["forks"].Restarts >= 20 })
	for _, e := range d.entries("ended") {
		if e["exit"] != "exit status 7" {
			t.Errorf("a status was stolen: %v", e)
		}
	}
	d.wantCtl(0, "forks: stopped\n", "", "stop", "forks")
	out, err := exec.Command("sh", "-c", fmt.Sprintf("cat /proc/%d/task/*/children", d.pid())).Output()
	if err != nil {
		t.Fatal(err)
	}
	daemon := strings.Fields(string(out))
	if len(daemon) != 1 {
		t.Fatalf("children of unshare: %q", out)
	}
	eventually(t, 10*time.Second, "no child is left", func() bool {
		children, _ := exec.Command("sh", "-c", "cat /proc/"+daemon[0]+"/task/*/children").Output()
		return len(strings.TrimSpace(string(children))) == 0
	})
	pid := 0
	fmt.Sscan(daemon[0], &pid)
	unix.Kill(pid, unix.SIGTERM)
	d.stopped(0)
}

// However often files are opened anew while programs write, no descriptor is
// left over, none is mixed up, and then nothing spins.
func TestProgramsAndReopen(t *testing.T) { // SU09
	d := startDaemon(t, prelude+`
[program.worker]
command = ["sh", "-c", 'while [ ! -e stop ]; do echo %(process_num)d out; echo %(process_num)d err >&2; sleep 0.01; done; exec sleep 300']
directory = "%(here)s"
numprocs = 3
startsecs = 0
stdout = ["out"]
stderr = ["err"]
`+plainSink+strings.ReplaceAll(plainSink, "out", "err"))
	has := func(name string) bool {
		stat, err := os.Stat(d.path(name))
		return err == nil && stat.Size() > 0
	}
	both := func() bool { return has("out.log") && has("err.log") }
	eventually(t, 20*time.Second, "both files", both)
	before := d.descriptors()
	for i := range 100 {
		for _, name := range []string{"out", "err"} {
			if err := os.Rename(d.path(name+".log"), d.path(fmt.Sprint(name, "-", i))); err != nil {
				t.Fatal(err)
			}
		}
		d.signal(unix.SIGUSR1)
		eventually(t, 20*time.Second, "both files anew", both)
	}
	touch(t, d.path("stop"))
	// Each of the six pipes that waits is looked at with another.
	eventually(t, 20*time.Second, "as many descriptors as before", func() bool { return d.descriptors() <= before+12 })
	eventually(t, 20*time.Second, "a tenth of a second without work", func() bool {
		used := cpuTicks(t, d.pid())
		time.Sleep(100 * time.Millisecond)
		return cpuTicks(t, d.pid()) <= used+1
	})
	d.stop()
	for _, name := range []string{"out", "err"} {
		files, err := filepath.Glob(d.path(name + "*"))
		if err != nil || len(files) != 101 {
			t.Errorf("%d files of %s, %v", len(files), name, err)
		}
		for _, file := range files {
			for line := range strings.Lines(string(readFile(t, file))) {
				if line[1:] != " "+name+"\n" {
					t.Fatalf("%s: %q", file, line)
				}
			}
		}
	}
}

// cpuTicks is the CPU time that a process has used, in hundredths of a second
// (proc_pid_stat(5)).
func cpuTicks(t *testing.T, pid int) (ticks int) {
	t.Helper()
	_, rest, _ := strings.Cut(string(readFile(t, fmt.Sprintf("/proc/%d/stat", pid))), ") ")
	for _, field := range strings.Fields(rest)[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}
