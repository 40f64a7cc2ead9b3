package proc

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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

func (r *run) take(pid int, stream string) func(Block) {
	if stream == Stderr {
		return r.err.take
	}
	return func(b Block) {
		r.mu.Lock()
		if n := len(r.pid); n == 0 || r.pid[n-1] != pid {
			r.pid = append(r.pid, pid)
		}
		r.mu.Unlock()
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
		Umask:       keepUmask,
	}
}

// prepare makes a program that reports to the run.
func prepare(t *testing.T, cfg Config) *run {
	t.Helper()
	r := &run{stop: make(chan struct{}), done: make(chan struct{})}
	cfg.Log = zerolog.New(r)
	cfg.Poller = newPoller(t)
	if cfg.Family == nil {
		cfg.Family = newFamily(t)
	}
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

// running waits for a child and returns its pid.
func (r *run) running(t *testing.T) (pid int) {
	t.Helper()
	eventually(t, "a child", func() bool {
		pid = r.Status().PID
		return pid != 0
	})
	return pid
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name string
		set  func(*Config)
		want string
	}{
		{"no command", func(c *Config) { c.Command = nil }, "command is empty"},
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

// What cannot be started is tried again, and runs once it is there.
func TestProgramCannotBeStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		set  func(*Config)
		want string
	}{
		{"unknown command", func(c *Config) { c.Command = []string{"no-such-command"} }, `command "no-such-command": executable file not found`},
		{"missing file", func(c *Config) { c.Command = []string{"./none"} }, `command "./none": no such file`},
		{"not executable", func(c *Config) { c.Command = []string{file} }, `command "` + file + `": permission denied`},
		{"missing directory", func(c *Config) { c.Directory = "/no/such" }, `directory "/no/such": no such file`},
		{"no directory", func(c *Config) { c.Directory = file }, `directory "` + file + `": not a directory`},
	}
	for _, tt := range tests {
		cfg := config("")
		tt.set(&cfg)
		r := launch(t, cfg)
		r.reaches(t, Fatal)
		r.halted(t)
		if exit := r.Status().Exit; !strings.HasPrefix(exit, tt.want) {
			t.Errorf("%s: %q, want %s", tt.name, exit, tt.want)
		}
	}
	cfg := config("")
	cfg.Command = []string{file + ".sh"}
	cfg.StartRetries = -1
	r := launch(t, cfg)
	eventually(t, "a failure", func() bool { return r.Status().Restarts > 0 })
	if err := os.WriteFile(file+".new", []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file+".sh"); err != nil {
		t.Fatal(err)
	}
	r.reaches(t, Running)
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
	cfg.StartWait = time.Minute
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
	cfg.StartWait = 50 * time.Millisecond
	r := launch(t, cfg)
	if s := r.Status(); s != (Status{}) || r.Signal(unix.SIGUSR1) != ErrNotRunning {
		t.Errorf("before: %+v", s)
	}
	r.Start()
	r.reaches(t, Starting)
	r.reaches(t, Running)
	first := r.running(t)
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
			p := &Program{kick: make(chan struct{}, 1), changed: make(chan struct{}), want: true}
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
		if status, err := prepare(t, config(script)).Exec(make(chan struct{})); status != want || err != nil {
			t.Errorf("%s: status %d, %v; want %d", script, status, err, want)
		}
	}
	r := prepare(t, config(`trap 'echo got it; exit 5' USR1; echo ready; while :; do sleep 0.01; done`))
	go func() { // ends with the command
		defer close(r.done)
		if status, err := r.Exec(make(chan struct{})); status != 5 || err != nil {
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
