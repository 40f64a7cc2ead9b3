package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A child has its limits and its nice value from its first instruction on, and
// the daemon keeps its own.
func TestLimits(t *testing.T) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	cfg := config("ulimit -Sn; ulimit -Hn; ulimit -c; nice")
	cfg.Nice = 3
	cfg.Umask = 0o077
	cfg.Limits = []Limit{
		{"nofile", unix.RLIMIT_NOFILE, 100, 200},
		{"core", unix.RLIMIT_CORE, 0, 0},
	}
	r := launch(t, cfg)
	r.reaches(t, Exited)
	inverse, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	nice := min(20-inverse+3, 19)
	r.out.expect(t, "100\n", "200\n", "0\n", strconv.Itoa(nice)+"\n")
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &after); err != nil || after != before {
		t.Errorf("our own limit is %v, was %v (%v)", after, before, err)
	}
}

// A program that is held is started, signalled and restarted as any other.
func TestHeldProgramEnds(t *testing.T) {
	cfg := config("echo up; exec sleep 300")
	cfg.Nice = 1
	r := launch(t, cfg)
	r.reaches(t, Running)
	pid := r.running(t)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil { // it is not traced any more
		t.Fatal(err)
	}
	eventually(t, "it has stopped", func() bool { return processState(t, pid) == "T" })
	unix.Kill(pid, unix.SIGCONT)
	r.halted(t)
	if s := r.Status(); s.Exit != "signal: terminated" {
		t.Errorf("%+v", s)
	}
}

// processState is the letter of /proc/PID/stat; t is a stop by a tracer.
func processState(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[0]
}

// A limit that cannot be set is an error of the start: the program has not run,
// and nothing is left of it.
func TestLimitRefused(t *testing.T) {
	cfg := config("echo it runs")
	cfg.StartRetries = 1
	cfg.Limits = []Limit{{"nofile", unix.RLIMIT_NOFILE, 1 << 40, 1 << 40}} // over fs.nr_open
	r := launch(t, cfg)
	r.reaches(t, Fatal)
	if s := r.Status(); s.Exit != "rlimits.nofile: operation not permitted" {
		t.Errorf("%+v", s)
	}
	r.halted(t)
	r.out.expect(t)
	if pid := endedChild(); pid != 0 {
		t.Errorf("a zombie is left: %d", pid)
	}
}

// A command that cannot be run is the same error whether it is held or not.
func TestHeldCommandFails(t *testing.T) {
	cfg := config("")
	cfg.Command = []string{t.TempDir() + "/nothing"}
	cfg.Nice = 1
	r := launch(t, cfg)
	r.reaches(t, Fatal)
	if s := r.Status(); !strings.Contains(s.Exit, "no such file") {
		t.Errorf("%+v", s)
	}
}

// Limits of another user's process need privileges that root may lack: then
// the thread takes his ids for a moment, and gives them back.
func TestLimitsOfUser(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("only root may become another user")
	}
	family := newFamily(t)
	for _, tt := range []struct {
		user *syscall.Credential
		want string
	}{{&syscall.Credential{Uid: 65534, Gid: 65534}, "65534 65534 100\n"}, {nil, "0 0 100\n"}} {
		cfg := config(`echo "$(id -u) $(id -g) $(ulimit -n)"`)
		cfg.Family, cfg.User = family, tt.user
		cfg.Limits = []Limit{{"nofile", unix.RLIMIT_NOFILE, 100, 100}}
		r := launch(t, cfg)
		r.reaches(t, Exited)
		r.halted(t)
		r.out.expect(t, tt.want)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || tasks == nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if text, err := os.ReadFile(task); err == nil && !bytes.Contains(text, []byte("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n")) {
			t.Errorf("%s:\n%s", task, text)
		}
	}
}
