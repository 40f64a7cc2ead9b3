package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// members counts the live processes of a group.
func members(t *testing.T, group int) int {
	t.Helper()
	all, known := groupMembers(group)
	if !known {
		t.Fatal("no /proc")
	}
	return len(all)
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
		cfg.Output = func(_ int, stream string) func(Block) {
			if stream == Stderr {
				return func(b Block) { report += string(b.Text) }
			}
			return func(b Block) {
				lines += b.Lines
				bytes += len(b.Text)
			}
		}
		status, err := prepare(t, cfg).Exec(make(chan struct{}))
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
	if status, err := r.Exec(make(chan struct{})); status != 0 || err != nil {
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
	r.Exec(make(chan struct{}))
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
	if status, err := r.Exec(make(chan struct{})); status != 0 || err != nil {
		t.Errorf("status %d, %v; stderr %q", status, err, r.err.all)
	}
	// flags: O_WRONLY. Each of our pipes is open once: no read end came along.
	r.out.expect(t, dir+"\n", "ours theirs\n", "0\n", "own group\n", "flags:\t01\n", "1\n", "1\n")
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
	cfg.StopWait = 200 * time.Millisecond
	cfg.Autorestart = Always
	r := launch(t, cfg)
	eventually(t, "hi", func() bool { return r.out.len() == 1 })
	first := r.running(t)
	defer unix.Kill(-first, unix.SIGKILL)
	begin := time.Now()
	eventually(t, "the restart", func() bool { return r.Status().Restarts == 1 })
	if d := time.Since(begin); d < drainGrace/2 || d > drainGrace+3*time.Second {
		t.Errorf("restarted after %v", d)
	}
	second := r.running(t)
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
	cfg.Output = func(_ int, stream string) func(Block) {
		if stream == Stderr {
			return func(Block) { close(all) }
		}
		return func(b Block) {
			if blocks++; blocks == 2 {
				time.Sleep(100 * time.Millisecond) // a sink that stands still
			}
			lines += b.Lines
		}
	}
	r := prepare(t, cfg)
	if status, err := r.Exec(make(chan struct{})); status != 0 || err != nil || lines != 500_000 || !closed(all) {
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
	if err := unix.Dup3(int(dir.Fd()), readEnd(t, r.running(t)), unix.O_CLOEXEC); err != nil {
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
		group := r.running(t)
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
	group := r.running(t)
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
	cfg := config(`trap 'wait; echo main; exit' TERM
sh -c 'trap "echo worker; exit" TERM; echo ready; while :; do sleep 0.02; done' & wait`)
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
