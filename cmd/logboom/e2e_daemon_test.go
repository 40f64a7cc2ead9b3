package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
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

// The tests in files named e2e_ run the binary as it ships, with real peers:
// what they send is compared with what is on disk after a clean stop.

// binary builds logboom once and returns a path to run it by. The file has no
// name any more: nothing is left behind, however the tests end.
var binary = sync.OnceValues(func() (string, error) { return build(&built) })

// faultyBinary is one that is killed at a step that LOGBOOM_KILL names.
var faultyBinary = sync.OnceValues(func() (string, error) { return build(&builtFaulty, "-tags", "faults") })

func build(to **os.File, flags ...string) (string, error) {
	dir, err := os.MkdirTemp("", "logboom")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "logboom")
	build := exec.Command("go", slices.Concat([]string{"build", "-trimpath", "-o", path}, flags, []string{"."})...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	if *to, err = os.Open(path); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), (*to).Fd()), nil
}

// built and builtFaulty keep the binaries for as long as the tests run.
var built, builtFaulty *os.File

// logboom returns a path to run the binary by.
func logboom(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the daemon and its peers: not in -short")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// need skips the test where a program that it runs is not installed.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed here", p)
		}
	}
}

func needRoot(t *testing.T, why string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skipf("needs root: %s", why)
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, within time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// output collects what a process writes, for the test to look at meanwhile.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// process is one that a test has started. It is killed, with its whole group,
// if the test ends without it having ended.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr output
	exited chan struct{} // closed once it is reaped
}

// spawn starts a command in a process group of its own.
func spawn(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	// A grandchild may hold standard error for longer than we wait.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		cmd.Wait() // what it says is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s unix.Signal) {
	p.t.Helper()
	if err := unix.Kill(p.pid(), s); err != nil {
		p.t.Fatalf("%v: %v\n%s", s, err, p.stderr.String())
	}
}

// kill ends the whole group with KILL and waits for the process.
func (p *process) kill() {
	select {
	case <-p.exited:
	default:
		unix.Kill(-p.pid(), unix.SIGKILL)
		<-p.exited
	}
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(within):
		p.t.Fatalf("%s has not ended within %v\n%s", p.cmd.Path, within, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// instance is a running daemon with a folder of its own.
type instance struct {
	*process
	dir string
}

// prelude begins the config of a daemon that shares nothing with others.
const prelude = `runtime_dir = "run"
state_dir = "state"
stop_timeout = "20s"
[http]
address = ""
`

// setting changes how a daemon is started.
type setting func(*exec.Cmd)

// behind runs the daemon by a wrapper, which execs its arguments.
func behind(wrapper ...string) setting {
	return func(cmd *exec.Cmd) {
		if len(wrapper) > 0 {
			cmd.Args = append(wrapper, cmd.Args...)
			cmd.Path, cmd.Err = exec.LookPath(wrapper[0])
		}
	}
}

// withStdin gives the daemon a standard input that holds a text and ends.
func withStdin(t *testing.T, text string) setting {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := w.WriteString(text); err != nil { // a pipe holds 64 KiB
		t.Fatal(err)
	}
	w.Close()
	return func(cmd *exec.Cmd) { cmd.Stdin = r }
}

// startDaemon writes conf.toml into a new folder, to which its paths are
// relative, and runs it.
func startDaemon(t *testing.T, conf string, settings ...setting) *instance {
	t.Helper()
	dir := t.TempDir()
	configure(t, dir, conf)
	return runDaemon(t, dir, settings...)
}

// configure writes conf.toml below a folder.
func configure(t *testing.T, dir, conf string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "conf.toml"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fill puts values in the place of words of a config.
func fill(conf string, wordsAndValues ...any) string {
	var list []string
	for _, v := range wordsAndValues {
		list = append(list, fmt.Sprint(v))
	}
	return strings.NewReplacer(list...).Replace(conf)
}

// runDaemon runs the config of a folder and returns when the daemon is ready.
func runDaemon(t *testing.T, dir string, settings ...setting) *instance {
	t.Helper()
	cmd := exec.Command(logboom(t), "run", "-c", filepath.Join(dir, "conf.toml"))
	for _, set := range settings {
		set(cmd)
	}
	d := &instance{process: spawn(t, cmd), dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the own log of %d:\n%s", d.pid(), d.stderr.String())
		}
	})
	d.await("started", 10*time.Second)
	return d
}

func (d *instance) path(elements ...string) string {
	return filepath.Join(append([]string{d.dir}, elements...)...)
}

// entry is a line of the daemon's own log.
type entry map[string]any

// entries are the lines of the own log whose message holds a text.
func (d *instance) entries(message string) []entry {
	d.t.Helper()
	var found []entry
	text := d.stderr.String()
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		e := entry{}
		if !strings.HasPrefix(line, "{") {
			continue // of a wrapper, or what main prints at the end
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			d.t.Fatalf("the own log is no JSON: %v: %q", err, line)
		}
		if m, _ := e["message"].(string); strings.Contains(m, message) {
			found = append(found, e)
		}
	}
	return found
}

// await waits for a line of the own log; a daemon that ends never writes one.
func (d *instance) await(message string, within time.Duration) entry {
	d.t.Helper()
	deadline := time.Now().Add(within)
	for {
		if found := d.entries(message); len(found) > 0 {
			return found[len(found)-1]
		}
		select {
		case <-d.exited:
			d.t.Fatalf("the daemon has ended before %q\n%s", message, d.stderr.String())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("no %q in the own log within %v\n%s", message, within, d.stderr.String())
		}
	}
}

// sums are those of the own log's last line.
type sums struct {
	received, kernelDropped, delivered, dropped, lost, undelivered int
}

// stop ends the daemon by TERM, as everything in these tests is to end: exit
// code 0, the balance as the last line of its log, nothing undelivered.
func (d *instance) stop() sums {
	d.t.Helper()
	d.signal(unix.SIGTERM)
	return d.stopped(0)
}

// stopped is the balance of a daemon that stops, with an exit code.
func (d *instance) stopped(code int) sums {
	d.t.Helper()
	if got := d.wait(30 * time.Second); got != code {
		d.t.Fatalf("exit code %d, want %d\n%s", got, code, d.stderr.String())
	}
	all := d.entries("")
	if len(all) == 0 || all[len(all)-1]["message"] != "stopped" {
		d.t.Fatalf("the last line is not \"stopped\"\n%s", d.stderr.String())
	}
	last := all[len(all)-1]
	number := func(key string) int {
		n, ok := last[key].(float64)
		if !ok {
			d.t.Errorf("no %s in %v", key, last)
		}
		return int(n)
	}
	s := sums{
		number("received"), number("kernel_dropped"), number("delivered"),
		number("dropped"), number("lost"), number("undelivered"),
	}
	if code == 0 && s.undelivered != 0 {
		d.t.Errorf("exit code 0, but %d messages are undelivered", s.undelivered)
	}
	if defects := d.entries("not balanced"); len(defects) > 0 {
		d.t.Errorf("%v", defects)
	}
	return s
}

// wantSums compares the balance of a daemon where every message goes to one
// sink with what came in: all of it delivered.
func wantSums(t *testing.T, got sums, received int) {
	t.Helper()
	if want := (sums{received: received, delivered: received, kernelDropped: got.kernelDropped}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// status is what the daemon says of itself now.
func (d *instance) status() snapshot {
	d.t.Helper()
	var s snapshot
	if err := json.Unmarshal(d.ask("/status"), &s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// ask gets a page from the control socket.
func (d *instance) ask(page string) []byte {
	d.t.Helper()
	body, err := askDaemon(d.path("run"), page)
	if err != nil {
		d.t.Fatalf("%v\n%s", err, d.stderr.String())
	}
	return body
}

// metric is the value of a series, as logboom_buffered{sink="all"}, or the sum of
// all that begin so: logboom_batches_total is of all sinks and causes.
func (d *instance) metric(series string) float64 {
	d.t.Helper()
	return metricIn(d.t, d.ask("/metrics"), series)
}

func metricIn(t *testing.T, page []byte, series string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(string(page)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name+"}", series) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// descriptors counts the files that a process has open.
func (p *process) descriptors() int {
	p.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid()))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(all)
}

// freePort finds one that nobody listens on, of loopback.
func freePort(t *testing.T, network string) int {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).Port
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// get fetches a page over TCP and returns its status code and body.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
