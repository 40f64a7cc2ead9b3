package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// A umask is the child's alone: other threads, and later children, keep ours.
func TestFamilyUmask(t *testing.T) {
	ours := unix.Umask(0o022)
	defer unix.Umask(ours)
	family := newFamily(t)
	for _, tt := range []struct {
		umask int
		want  string
	}{{0o077, "0077\n"}, {keepUmask, "0022\n"}, {0, "0000\n"}} {
		cfg := config("umask")
		cfg.Umask = tt.umask
		cfg.Family = family
		r := prepare(t, cfg)
		if status, err := r.Exec(make(chan struct{})); status != 0 || err != nil {
			t.Errorf("status %d, %v", status, err)
		}
		r.out.expect(t, tt.want)
	}
	if now := unix.Umask(0o022); now != 0o022 {
		t.Errorf("our umask is %03o", now)
	}
}

// A child runs as its user, with that user's groups and no other.
func TestProgramUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it runs a child as another user")
	}
	cfg := config("id -u; id -G; grep NoNewPrivs /proc/self/status >/dev/null")
	cfg.Directory = "/"
	cfg.User = &syscall.Credential{Uid: 12345, Gid: 23456, Groups: []uint32{34567, 45678}}
	r := prepare(t, cfg)
	r.Exec(make(chan struct{}))
	r.out.expect(t, "12345\n", "23456 34567 45678\n")
}

// becomeEnv makes this test binary say whether it may run a child as root.
const becomeEnv = "PROC_TEST_BECOME"

// What is not permitted is told before anything is started.
func TestProgramUserRefused(t *testing.T) {
	if os.Getenv(becomeEnv) != "" {
		cfg := config("true")
		cfg.User = &syscall.Credential{Uid: 0, Gid: 0}
		_, err := New(cfg)
		fmt.Println("said:", err)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: it runs itself as another user")
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestProgramUserRefused$")
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), becomeEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	if want := "said: user 0: not permitted, since the daemon runs as user 12345\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}

// After Close nothing is started, and what was left is killed.
func TestFamilyClose(t *testing.T) {
	family := NewFamily("", zerolog.Nop())
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := family.start(cmd, &Config{Name: "test", Umask: keepUmask}); err != nil {
		t.Fatal(err)
	}
	family.Close()
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the child: %v", err)
	}
	family.reaped(cmd.Process.Pid) // does nothing any more
	if err := family.start(exec.Command("true"), &Config{Name: "test", Umask: keepUmask}); err != errClosed {
		t.Errorf("a start after Close: %v", err)
	}
}

// The record holds the groups that have members, and goes with a clean end.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.json")
	family := NewFamily(path, zerolog.Nop())
	recorded := func() (names []string) {
		var r recorded
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range r.Groups {
			if s, ok := readStat(g.ID); ok && s.started != g.Started {
				t.Errorf("%s: started at %d, recorded %d", g.Program, s.started, g.Started)
			}
			names = append(names, g.Program)
		}
		return names
	}
	var children []*exec.Cmd
	for name, script := range map[string]string{"leaves": "sleep 300 & exit", "goes": "exit", "stays": "exec sleep 300"} {
		cmd := exec.Command("sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := family.start(cmd, &Config{Name: name, Umask: keepUmask}); err != nil {
			t.Fatal(err)
		}
		defer unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		if !slices.Contains(recorded(), name) {
			t.Errorf("%s is not in the record", name)
		}
		children = append(children, cmd)
	}
	for _, cmd := range children {
		if strings.Contains(cmd.Args[2], "exec") {
			continue
		}
		cmd.Wait()
		family.reaped(cmd.Process.Pid)
	}
	last := exec.Command("true")
	if err := family.start(last, &Config{Name: "last", Umask: keepUmask}); err != nil {
		t.Fatal(err)
	}
	last.Wait()
	names := recorded()
	if slices.Sort(names); !slices.Equal(names, []string{"last", "leaves", "stays"}) {
		t.Errorf("recorded %q", names)
	}
	family.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the record after the end: %v", err)
	}
	for _, cmd := range children {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	}
}

// What a killed daemon recorded is ended; a number that is another's by now is
// left alone, and so is everything after a boot.
func TestLeftovers(t *testing.T) {
	session, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	leader := func(s *stat, _ *recorded) uint64 { return s.started }
	tests := []struct {
		name, script string
		change       func(*stat, *recorded) uint64 // returns the recorded start
		killed       bool
	}{
		{"a leader", "exec sleep 300", leader, true},
		{"one that ignores TERM", "trap '' TERM; while :; do sleep 0.02; done", leader, true},
		{"a worker whose leader is gone", "sleep 300 & exit", leader, true},
		{"another leader", "exec sleep 300", func(s *stat, _ *recorded) uint64 { return s.started - 1 }, false},
		{"members older than the leader", "sleep 300 & exit", func(s *stat, _ *recorded) uint64 { return s.started + 1e6 }, false},
		{"another session", "sleep 300 & exit", func(s *stat, r *recorded) uint64 { r.Session++; return s.started }, false},
		{"another boot", "exec sleep 300", func(s *stat, r *recorded) uint64 { r.Boot = "x"; return s.started }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", tt.script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			group := cmd.Process.Pid
			defer unix.Kill(-group, unix.SIGKILL)
			s, ok := readStat(group)
			if !ok {
				t.Fatal("no stat")
			}
			waited := make(chan struct{})
			go func() { // ends with the leader
				cmd.Wait()
				close(waited)
			}()
			if strings.Contains(tt.script, "exit") {
				finishes(t, "the leader", waited)
			}
			r := recorded{Boot: bootID(), Session: session}
			r.Groups = []groupOf{{ID: group, Started: tt.change(&s, &r), Program: tt.name}}
			text, _ := json.Marshal(r)
			path := filepath.Join(t.TempDir(), "groups.json")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			endLeftovers(path, zerolog.New(&log))
			if left := members(t, group); (left == 0) != tt.killed {
				t.Errorf("%d processes are left, log %q", left, log.String())
			}
			if told := strings.Count(log.String(), "\n"); (told == 1) != tt.killed {
				t.Errorf("logged %q", log.String())
			}
			unix.Kill(-group, unix.SIGKILL)
			finishes(t, "the leader", waited)
		})
	}
	// A record that cannot be read is told, and one that is not there is fine.
	for text, want := range map[string]int{"{": 1, "": 0} {
		path := filepath.Join(t.TempDir(), "groups.json")
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log strings.Builder
		endLeftovers(path, zerolog.New(&log))
		if strings.Count(log.String(), "\n") != want {
			t.Errorf("%q: logged %q", text, log.String())
		}
	}
}

// adopt makes this test binary a process that adopts orphans.
func adopt() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println("skip:", err)
		return
	}
	family := NewFamily("", zerolog.Nop())
	for i := range 200 {
		cmd := exec.Command("sh", "-c", "(sleep 0.01 &); (:&); exit 7")
		if err := family.start(cmd, &Config{Name: "test", Umask: keepUmask}); err != nil {
			fmt.Println("run", i, err)
		}
		if err := cmd.Wait(); err == nil || err.Error() != "exit status 7" {
			fmt.Println("run", i, "ended with", err)
		}
		family.reaped(cmd.Process.Pid)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		// ECHILD: neither a zombie nor a process is left.
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == unix.ECHILD {
			break
		} else if time.Now().After(deadline) {
			fmt.Println("children are left:", err)
			break
		}
	}
	family.Close()
	fmt.Println("done")
}

// Orphans are reaped, and no status is taken from those who wait for one.
func TestOrphans(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"=adopt")
	out, err := cmd.CombinedOutput()
	if strings.HasPrefix(string(out), "skip:") {
		t.Skipf("no subreaper here: %s", out)
	}
	if err != nil || string(out) != "done\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
