package proc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// run is a program under test, with what it gave out and what it logged.
type run struct {
	*Program
	out, err records

	mu  sync.Mutex // guards the fields below
	log bytes.Buffer
	pid []int // of each block, without repeats in a row

	stop chan struct{}
	done chan struct{}
}

func (r *run) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *run) pids() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int(nil), r.pid...)
}

func (r *run) take(pid int, stream string, b Block) {
	r.mu.Lock()
	if n := len(r.pid); n == 0 || r.pid[n-1] != pid {
		r.pid = append(r.pid, pid)
	}
	r.mu.Unlock()
	if stream == Stderr {
		r.err.take(b)
	} else {
		r.out.take(b)
	}
}

// logged returns the log's lines with a message.
func (r *run) logged(t *testing.T, msg string) (lines []map[string]any) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.log.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if m["message"] == msg {
			lines = append(lines, m)
		}
	}
	return lines
}

// config runs a script in sh, once, and waits for nothing.
func config(script string) Config {
	return Config{
		Name:        "test",
		Command:     []string{"sh", "-c", script},
		Autostart:   true,
		ExitCodes:   []int{0},
		Backoff:     Backoff{Min: 20 * time.Millisecond, Max: time.Second, Reset: time.Minute},
		StopWait:    patience,
		KillAsGroup: true,
	}
}

// prepare makes a program that reports to the run.
func prepare(t *testing.T, cfg Config) *run {
	t.Helper()
	r := &run{stop: make(chan struct{}), done: make(chan struct{})}
	cfg.Log = zerolog.New(r)
	cfg.Poller = newPoller(t)
	if cfg.Output == nil {
		cfg.Output = r.take
	}
	var err error
	if r.Program, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// launch runs a program until halted.
func launch(t *testing.T, cfg Config) *run {
	t.Helper()
	r := prepare(t, cfg)
	go func() { // ends with stop
		defer close(r.done)
		r.Run(r.stop)
	}()
	t.Cleanup(func() { r.halted(t) })
	return r
}

// halted stops the program, if it was not, and waits for it.
func (r *run) halted(t *testing.T) {
	t.Helper()
	if !closed(r.stop) {
		close(r.stop)
	}
	finishes(t, "the program", r.done)
}

// reaches waits for a state.
func (r *run) reaches(t *testing.T, want State) {
	t.Helper()
	eventually(t, want.String(), func() bool { return r.Status().State == want })
}

// members counts the live processes of a group.
func members(t *testing.T, group int) (n int) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just gone
		}
		// pid (comm) state ppid pgrp
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if fields[2] == strconv.Itoa(group) && fields[0] != "Z" {
			n++
		}
	}
	return n
}

// PI01: no write of a child takes long while there is memory. The machine may
// be busy with something else: one of three attempts must do.
func TestProgramFastWriter(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for attempt := 1; ; attempt++ {
		cfg := config("")
		cfg.Command = []string{exe}
		cfg.Environment = []string{helperEnv + "=flood"}
		var lines, bytes int
		var report string
		cfg.Output = func(_ int, stream string, b Block) {
			if stream == Stderr {
				report += string(b.Text)
				return
			}
			lines += b.Lines
			bytes += len(b.Text)
		}
		status, err := prepare(t, cfg).Exec()
		if status != 0 || err != nil || lines != 2000 || bytes != 20_000_000 {
			t.Fatalf("status %d, %v, %d lines, %d bytes", status, err, lines, bytes)
		}
		var longest, total time.Duration
		if _, err := fmt.Sscan(report, &longest, &total); err != nil {
			t.Fatal(err)
		}
		if longest < 50*time.Millisecond && total < 2*time.Second {
			t.Logf("longest write %v, all %v", longest, total)
			return
		}
		if attempt == 3 {
			t.Fatalf("a write took %v, all of them %v", longest, total)
		}
	}
}

// PI03: every line of stderr is kept as it is. PI12: so is a last one without LF.
func TestProgramStreams(t *testing.T) {
	r := prepare(t, config(`printf 'plain text\n{"level":200}\n\n[2026-03-15 10:20:30] local.INFO: x\n' >&2; printf 'a\nlast words'`))
	if status, err := r.Exec(); status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	r.err.expect(t, "plain text\n", "{\"level\":200}\n", "\n", "[2026-03-15 10:20:30] local.INFO: x\n")
	r.out.expect(t, "a\n", "last words$")
	if pids := r.pids(); len(pids) != 1 || pids[0] <= 0 {
		t.Errorf("pids %v", pids)
	}
}

func TestProgramRedirectStderr(t *testing.T) {
	cfg := config("echo one; echo two >&2; echo three")
	cfg.RedirectStderr = true
	r := prepare(t, cfg)
	r.Exec()
	r.out.expect(t, "one\n", "two\n", "three\n")
	r.err.expect(t)
}

// What a child is given: its directory, our environment and more, a group of
// its own, /dev/null to read, and pipes that block.
func TestProgramSurroundings(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + `pwd; echo "$OURS $THEIRS"; wc -c; read -r _ _ _ _ group _ < /proc/$$/stat; [ $group = $$ ] && echo own group
grep flags /proc/$$/fdinfo/1; for fd in 1 2; do ls -l /proc/$$/fd | grep -cF "$(readlink /proc/$$/fd/$fd)"; done`
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OURS", "ours")
	t.Setenv("THEIRS", "not this")
	cfg := config("")
	cfg.Command = []string{"./script"}
	cfg.Directory = dir
	cfg.Environment = []string{"THEIRS=theirs"}
	r := prepare(t, cfg)
	if status, err := r.Exec(); status != 0 || err != nil {
		t.Errorf("status %d, %v; stderr %q", status, err, r.err.all)
	}
	// flags: O_WRONLY. Each of our pipes is open once: no read end came along.
	r.out.expect(t, dir+"\n", "ours theirs\n", "0\n", "own group\n", "flags:\t01\n", "1\n", "1\n")
}

func TestNewRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		set  func(*Config)
		want string
	}{
		{"no command", func(c *Config) { c.Command = nil }, "command is empty"},
		{"unknown command", func(c *Config) { c.Command = []string{"no-such-command"} }, `command "no-such-command": executable file not found`},
		{"missing file", func(c *Config) { c.Command = []string{"./none"} }, `command "./none": no such file`},
		{"not executable", func(c *Config) { c.Command = []string{file} }, `command "` + file + `": permission denied`},
		{"missing directory", func(c *Config) { c.Directory = "/no/such" }, `directory "/no/such": no such file`},
		{"no directory", func(c *Config) { c.Directory = file }, `directory "` + file + `": not a directory`},
		{"environment", func(c *Config) { c.Environment = []string{"A=b", "C"} }, `environment "C"`},
		{"backoff", func(c *Config) { c.Backoff.Max = 0 }, "backoff from 20ms to 0s"},
	}
	for _, tt := range tests {
		cfg := config("")
		tt.set(&cfg)
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

// PI13: the last lines of a child that dies at once are never lost, and its
// end is told once.
func TestProgramTail(t *testing.T) {
	times := 200
	if testing.Short() {
		times = 20
	}
	var want strings.Builder
	for i := range 10_000 {
		fmt.Fprintln(&want, i+1)
	}
	for range times {
		r := launch(t, config("seq 1 10000; exit 1"))
		r.reaches(t, Exited)
		if string(r.out.text) != want.String() || r.out.len() != 10_000 {
			t.Fatalf("%d records, %d bytes", r.out.len(), len(r.out.text))
		}
		if lines := r.logged(t, "ended"); len(lines) != 1 || lines[0]["exit"] != "exit status 1" {
			t.Fatalf("logged %v", lines)
		}
		r.halted(t)
	}
}

// PI14: a grandchild that holds the pipe delays a restart by 2 s at most, and
// what it writes later is still read.
func TestProgramGrandchildHoldsPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config(`(while [ ! -e speak ]; do sleep 0.02; done; echo late; exec sleep 300) & echo hi
if [ -e ran ]; then wait; fi; : > ran; exit 1`)
	cfg.Directory = dir
	cfg.Autorestart = Always
	r := launch(t, cfg)
	eventually(t, "hi", func() bool { return r.out.len() == 1 })
	first := r.Status().PID
	defer unix.Kill(-first, unix.SIGKILL)
	begin := time.Now()
	eventually(t, "the restart", func() bool { return r.Status().Restarts == 1 })
	if d := time.Since(begin); d < drainGrace/2 || d > drainGrace+3*time.Second {
		t.Errorf("restarted after %v", d)
	}
	second := r.Status().PID
	defer unix.Kill(-second, unix.SIGKILL)
	eventually(t, "the second hi", func() bool { return r.out.len() == 2 })
	if err := os.WriteFile(filepath.Join(dir, "speak"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "late, twice", func() bool { return r.out.len() == 4 })
	begin = time.Now()
	r.halted(t) // while the first grandchild still sleeps
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("stopped after %v", d)
	}
	r.out.expect(t, "hi\n", "hi\n", "late\n", "late\n")
	if members(t, first) == 0 {
		t.Error("the first grandchild ended before the program: nothing was tested")
	}
}

// PI23: a child sees no error, however slow its lines are taken.
func TestProgramSlowOutput(t *testing.T) {
	cfg := config("seq 1 500000 && echo all >&2")
	lines, blocks := 0, 0
	all := make(chan struct{})
	cfg.Output = func(_ int, stream string, b Block) {
		if stream == Stderr {
			close(all)
			return
		}
		if blocks++; blocks == 2 {
			time.Sleep(100 * time.Millisecond) // a sink that stands still
		}
		lines += b.Lines
	}
	r := prepare(t, cfg)
	if status, err := r.Exec(); status != 0 || err != nil || lines != 500_000 || !closed(all) {
		t.Errorf("status %d, %v, %d lines", status, err, lines)
	}
}

// SU01: after a read error the pipe is closed and the error told, so the child
// does not hang: it gets EPIPE.
func TestProgramReadError(t *testing.T) {
	r := launch(t, config("while echo beat; do :; done"))
	eventually(t, "a beat", func() bool { return r.out.len() > 0 })
	dir, err := os.Open(t.TempDir()) // reading a directory fails
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Dup3(int(dir.Fd()), readEnd(t, r.Status().PID), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r.reaches(t, Exited)
	if exit := r.Status().Exit; exit != "signal: broken pipe" {
		t.Errorf("exit %q", exit)
	}
	lines := r.logged(t, "output cannot be read, its pipe is closed")
	if len(lines) != 1 || lines[0]["level"] != "error" || !strings.Contains(fmt.Sprint(lines[0]["error"]), "stdout: is a directory") {
		t.Errorf("logged %v", lines)
	}
}

// readEnd finds our end of the pipe that is a child's stdout.
func readEnd(t *testing.T, pid int) int {
	t.Helper()
	pipe, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
	if err != nil {
		t.Fatal(err)
	}
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if link, _ := os.Readlink(fd); link == pipe {
			n, _ := strconv.Atoi(filepath.Base(fd))
			return n
		}
	}
	t.Fatalf("%s is not open here", pipe)
	return -1
}

// SU02: workers that ignore the stop signal, and outlive their parent, are
// killed with the group.
func TestProgramStopKillsGroup(t *testing.T) {
	for _, parent := range []string{"trap 'exit 0' TERM", ":"} {
		cfg := config(`trap '' TERM; sleep 300 & sleep 300 & ` + parent + `; echo ready; while :; do sleep 0.02; done`)
		cfg.StopWait = 200 * time.Millisecond
		r := launch(t, cfg)
		eventually(t, "ready", func() bool { return r.out.len() == 1 })
		group := r.Status().PID
		if n := members(t, group); n < 3 {
			t.Fatalf("%d processes", n)
		}
		begin := time.Now()
		r.halted(t)
		if d := time.Since(begin); d < cfg.StopWait {
			t.Errorf("%q: stopped after %v: the workers had no time", parent, d)
		}
		if n := members(t, group); n != 0 {
			t.Errorf("%q: %d processes are left", parent, n)
		}
	}
}

// Where the group shall not be killed, it is left alone.
func TestProgramStopLeavesGroup(t *testing.T) {
	t.Parallel()
	cfg := config(`sleep 300 & echo ready; wait`)
	cfg.KillAsGroup = false
	r := launch(t, cfg)
	eventually(t, "ready", func() bool { return r.out.len() == 1 })
	group := r.Status().PID
	defer unix.Kill(-group, unix.SIGKILL)
	r.halted(t) // 2 s, since the sleep holds the pipe
	if n := members(t, group); n != 1 {
		t.Errorf("%d processes are left, want the sleep", n)
	}
	if status := r.Status(); status.State != Stopped || status.Exit != "signal: terminated" || status.PID != 0 {
		t.Errorf("status %+v", status)
	}
}

func TestProgramStopAsGroup(t *testing.T) {
	cfg := config(`sh -c 'trap "echo worker; exit" TERM; echo ready; while :; do sleep 0.02; done' & trap 'wait; echo main; exit' TERM; wait`)
	cfg.StopAsGroup = true
	r := launch(t, cfg)
	eventually(t, "ready", func() bool { return r.out.len() == 1 })
	r.halted(t)
	r.out.expect(t, "ready\n", "worker\n", "main\n")
}

// SU07: what a child prints while it stops is read to the end.
func TestProgramLastWords(t *testing.T) {
	t.Parallel()
	r := launch(t, config(`trap 'i=0; while [ $i -lt 100 ]; do echo $i; sleep 0.02; i=$((i+1)); done; exit 0' TERM
echo ready; while :; do sleep 0.01; done`))
	eventually(t, "ready", func() bool { return r.out.len() == 1 })
	r.halted(t)
	want := []string{"ready\n"}
	for i := range 100 {
		want = append(want, strconv.Itoa(i)+"\n")
	}
	r.out.expect(t, want...)
	if lines := r.logged(t, "stopped"); len(lines) != 1 || lines[0]["exit"] != "exit status 0" {
		t.Errorf("logged %v", lines)
	}
}

// SU10: every unexpected exit is one warning that says all about it.
func TestProgramExitIsLogged(t *testing.T) {
	tests := []struct {
		script, exit string
		codes        []int
		level        string
	}{
		{"kill -SEGV $$", "signal: segmentation fault", nil, "warn"},
		{"exit 137", "exit status 137", nil, "warn"},
		{"exit 0", "exit status 0", []int{0, 3}, "info"},
		{"exit 3", "exit status 3", []int{0, 3}, "info"},
	}
	for _, tt := range tests {
		cfg := config(tt.script)
		cfg.ExitCodes = tt.codes
		cfg.Autorestart = Always
		cfg.Backoff = Backoff{Min: time.Minute, Max: time.Minute, Reset: time.Hour} // no spinning here
		r := launch(t, cfg)
		r.reaches(t, Backingoff)
		pid := float64(r.pidLogged(t))
		lines := r.logged(t, "ended")
		if len(lines) != 1 {
			t.Fatalf("%s: logged %v", tt.script, lines)
		}
		m := lines[0]
		exit, _, _ := strings.Cut(m["exit"].(string), " (core dumped)")
		if m["level"] != tt.level || m["program"] != "test" || m["pid"] != pid || exit != tt.exit || m["restart_in"] != "1m0s" {
			t.Errorf("%s: logged %v", tt.script, m)
		}
		if ran, err := time.ParseDuration(m["ran"].(string)); err != nil || ran <= 0 || ran > patience {
			t.Errorf("%s: ran %v, %v", tt.script, ran, err)
		}
		r.halted(t)
	}
}

// pidLogged is the pid of the one start.
func (r *run) pidLogged(t *testing.T) int {
	t.Helper()
	lines := r.logged(t, "started")
	if len(lines) != 1 {
		t.Fatalf("logged %v", lines)
	}
	return int(lines[0]["pid"].(float64))
}

// A program that dies at once is given up after its retries; an order to start
// begins anew.
func TestProgramFatal(t *testing.T) {
	cfg := config("exit 1")
	cfg.StartSecs = time.Minute
	cfg.StartRetries = 2
	r := launch(t, cfg)
	r.reaches(t, Fatal)
	if lines := r.logged(t, "ended"); len(lines) != 2 {
		t.Errorf("logged %v", lines)
	}
	if lines := r.logged(t, "ended too often: gave up"); len(lines) != 1 || lines[0]["level"] != "error" {
		t.Errorf("logged %v", lines)
	}
	if s := r.Status(); s.Restarts != 2 || s.Exit != "exit status 1" || s.PID != 0 {
		t.Errorf("status %+v", s)
	}
	r.Start()
	eventually(t, "two more restarts", func() bool { return r.Status().Restarts == 5 })
	r.reaches(t, Fatal)
}

// What cannot be started is told, and tried again.
func TestProgramCannotStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho up; exec sleep 300\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := config("")
	cfg.Command = []string{file}
	cfg.StartRetries = -1
	r := prepare(t, cfg)
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with stop
		defer close(r.done)
		r.Run(r.stop)
	}()
	defer r.halted(t)
	r.reaches(t, Backingoff)
	lines := r.logged(t, "cannot be started")
	if len(lines) == 0 || !strings.Contains(lines[0]["exit"].(string), file) {
		t.Errorf("logged %v", lines)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "up", func() bool { return r.out.len() == 1 })
	r.reaches(t, Running)
}

// The orders of an operator, and the states they lead through.
func TestProgramOrders(t *testing.T) {
	cfg := config("echo up; exec sleep 300")
	cfg.Autostart = false
	cfg.StartSecs = 50 * time.Millisecond
	r := launch(t, cfg)
	if s := r.Status(); s != (Status{}) || r.Signal(unix.SIGUSR1) != ErrNotRunning {
		t.Errorf("before: %+v", s)
	}
	r.Start()
	r.reaches(t, Starting)
	r.reaches(t, Running)
	first := r.Status().PID
	r.Start() // changes nothing
	r.Restart()
	eventually(t, "a new process", func() bool { s := r.Status(); return s.PID != first && s.State == Running })
	if s := r.Status(); s.Restarts != 1 || s.Exit != "signal: terminated" {
		t.Errorf("restarted: %+v", s)
	}
	r.Stop()
	r.reaches(t, Stopped)
	r.Restart() // of one that does not run is a start
	r.reaches(t, Running)
	if err := r.Signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}
	r.reaches(t, Exited)
	if s := r.Status(); s.Exit != "signal: killed" {
		t.Errorf("killed: %+v", s)
	}
}

// An order ends the wait between two starts; so does the end of it all.
func TestProgramPause(t *testing.T) {
	for name, order := range map[string]func(p *Program, stop chan struct{}){
		"stop":    func(p *Program, _ chan struct{}) { p.Stop() },
		"restart": func(p *Program, _ chan struct{}) { p.Restart() },
		"end":     func(_ *Program, stop chan struct{}) { close(stop) },
		"none":    func(*Program, chan struct{}) {},
		"start":   func(p *Program, _ chan struct{}) { p.Start() }, // it is about to
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &Program{kick: make(chan struct{}, 1), want: true}
			stop := make(chan struct{})
			begin := time.Now()
			go func() {
				time.Sleep(time.Second)
				order(p, stop)
			}()
			p.pause(time.Minute, stop)
			want := time.Second
			if name == "none" || name == "start" {
				want = time.Minute
			}
			if d := time.Since(begin); d != want {
				t.Errorf("%s: paused for %v, want %v", name, d, want)
			}
		})
	}
}

// Exec: the status is what a shell would show, and signals are passed on.
func TestExec(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -KILL $$": 137} {
		if status, err := prepare(t, config(script)).Exec(); status != want || err != nil {
			t.Errorf("%s: status %d, %v; want %d", script, status, err, want)
		}
	}
	r := prepare(t, config(`trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.01; done`))
	go func() { // ends with the command
		defer close(r.done)
		if status, err := r.Exec(); status != 5 || err != nil {
			t.Errorf("status %d, %v", status, err)
		}
	}()
	eventually(t, "ready", func() bool { return r.out.len() == 1 })
	if err := r.Signal(unix.SIGUSR1); err != nil {
		t.Error(err)
	}
	finishes(t, "the command", r.done)
	r.out.expect(t, "ready\n", "got it\n")
}
