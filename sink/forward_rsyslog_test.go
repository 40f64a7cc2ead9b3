package sink

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rsyslog is a real rsyslogd that writes the messages it gets over TCP to a
// file.
type rsyslog struct {
	t           testing.TB
	Target      Target
	program     string
	conf, pid   string
	out, stderr string
	cmd         *exec.Cmd
}

const rsyslogConf = `
global(workDirectory="%[1]s")
module(load="imtcp")
template(name="message" type="string" string="%%msg%%\n")
ruleset(name="all" queue.type="Direct") {
	action(type="omfile" file="%[1]s/out" template="message" queue.type="Direct")
}
input(type="imtcp" address="127.0.0.1" port="%[2]s" ruleset="all")
`

func newRsyslog(t testing.TB) *rsyslog {
	t.Helper()
	program, err := exec.LookPath("rsyslogd")
	if err != nil {
		// Not in the PATH of other users than root.
		if program, err = exec.LookPath("/usr/sbin/rsyslogd"); err != nil {
			t.Skip("rsyslogd is not installed: ", err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	dir := t.TempDir()
	r := &rsyslog{
		t: t, program: program, Target: Target{"tcp", free.Addr().String()},
		conf: filepath.Join(dir, "conf"), pid: filepath.Join(dir, "pid"),
		out: filepath.Join(dir, "out"), stderr: filepath.Join(dir, "stderr"),
	}
	if err := os.WriteFile(r.conf, fmt.Appendf(nil, rsyslogConf, dir, port), 0o600); err != nil {
		t.Fatal(err)
	}
	r.up()
	t.Cleanup(func() { r.down(syscall.SIGKILL) })
	return r
}

// up starts it and waits until it listens.
func (r *rsyslog) up() {
	os.Remove(r.pid)
	stderr, err := os.OpenFile(r.stderr, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer stderr.Close()
	r.cmd = exec.Command(r.program, "-n", "-f", r.conf, "-i", r.pid)
	r.cmd.Stderr = stderr
	if err := r.cmd.Start(); err != nil {
		r.t.Error(err)
		return
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", r.Target.Address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(r.stderr)
			r.t.Errorf("rsyslogd does not listen: %s", text)
			return
		}
	}
}

func (r *rsyslog) down(signal syscall.Signal) {
	r.cmd.Process.Signal(signal)
	r.cmd.Wait()
}

// lines returns how often each line stands in its file.
func (r *rsyslog) lines() map[string]int {
	text, _ := os.ReadFile(r.out)
	count := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		count[strings.TrimSuffix(line, "\n")]++
	}
	return count
}

// Two restarts and a kill of a real server under load: each message arrives
// at least once, and more than once at most as often as is counted.
func TestForwardRsyslogRestarts(t *testing.T) {
	const batches, perBatch, pace = 200, 500, 25 * time.Millisecond
	r, w := newRsyslog(t), newTimber(t)
	f := startForwarder(t, testForward(r.Target))

	// Each has its batch, so that it comes while messages go out.
	disturb := map[int]syscall.Signal{40: syscall.SIGTERM, 90: syscall.SIGKILL, 140: syscall.SIGTERM}
	restarted := make(chan struct{})
	close(restarted)
	defer func() { <-restarted }()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range batches {
		<-tick.C
		if signal, ok := disturb[i]; ok {
			<-restarted
			done := make(chan struct{})
			restarted = done
			go func() {
				defer close(done)
				r.down(signal)
				r.up()
			}()
		}
		messages := make([]string, perBatch)
		for j := range messages {
			messages[j] = fmt.Sprintf("<13>1 2026-03-15T10:20:30Z host app - - - %06d", i*perBatch+j)
		}
		deliverAtLast(t, f, w.batch(Lines, messages...))
	}
	<-restarted
	if err := f.Close(nil); err != nil {
		t.Error(err)
	}
	missing := func() (n int) {
		got := r.lines()
		for i := range batches * perBatch {
			if got[fmt.Sprintf("%06d", i)] == 0 {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(5 * time.Second); missing() > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	if n := missing(); n > 0 {
		t.Errorf("%d messages lost", n)
	}
	twice, got := 0, r.lines()
	for i := range batches * perBatch {
		twice += max(got[fmt.Sprintf("%06d", i)]-1, 0)
	}
	resent := int(f.counters.resent.Load())
	if twice > resent {
		t.Errorf("%d duplicates, %d counted as resent", twice, resent)
	}
	if resent == 0 {
		t.Error("nothing was resent: no connection broke")
	}
	t.Logf("%d duplicates, %d counted as resent", twice, resent)
}
