package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// traced runs the daemon below strace, which writes the calls to a file: the
// tracer is a process of its own, so that signals go to the daemon.
func traced(t *testing.T, path, calls string) setting {
	t.Helper()
	need(t, "strace")
	return behind("strace", "-D", "-f", "-q", "-y", "-s", "0", "-o", path, "-e", "trace="+calls)
}

// untilTraced waits until the tracer has seen the end of the daemon.
func untilTraced(t *testing.T, path string) []byte {
	t.Helper()
	eventually(t, 10*time.Second, "the end of the trace", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.HasSuffix(text, []byte("+++ exited with 0 +++\n"))
	})
	return readFile(t, path)
}

func count(text []byte, pattern string) int {
	return len(regexp.MustCompile(pattern).FindAll(text, -1))
}

// A batch is a member is a write; and messages come many a call.
func TestSystemCallsUnderLoad(t *testing.T) {
	p := freePorts(t)
	dir := t.TempDir()
	trace := dir + "/trace"
	configure(t, dir, p.with(prelude+trafficSources+fill(trafficSink, "$source", "all")))
	d := runDaemon(t, dir, traced(t, trace, "write,writev,pwrite64,recvmmsg"))
	senders := startTraffic(t, d, p)
	d.received(10000)
	sent := senders.halt()
	total := 0
	for _, n := range sent {
		total += n
	}
	eventually(t, 10*time.Second, "all is delivered", func() bool {
		return d.status().Sinks["file"].Delivered == uint64(total)
	})
	batches := int(d.metric("logboom_batches_total"))
	writes := int(d.metric("logboom_writes_total"))
	wantSums(t, d.stop(), total)
	text := untilTraced(t, trace)
	members := membersOf(t, d.path("log", "all.gz"))
	traced := count(text, `(?m)write\w*\(\d+</[^>]*/log/all\.gz>`)
	if batches == 0 || writes != batches || traced != batches || members != batches {
		t.Errorf("%d batches, %d writes counted, %d writes seen, %d members", batches, writes, traced, members)
	}
	// Connections are read by it too, one message a call.
	if calls := count(text, `, \d\d+, MSG_DONTWAIT, `); calls == 0 || calls > sent["udp"]/10 {
		t.Errorf("%d calls of recvmmsg for %d messages", calls, sent["udp"])
	}
}

// An idle daemon sleeps, whatever sources it has and whatever they have
// brought before.
func TestSystemCallsWhenIdle(t *testing.T) {
	p := freePorts(t)
	dir := t.TempDir()
	trace := dir + "/trace"
	configure(t, dir, p.with(prelude+trafficSources+trafficSink)+`
[source.unixgram]
type = "syslog"
listen = "unixgram://gram.sock"
sinks = ["file"]
[program.sleeper]
command = ["sh", "-c", "echo begun; exec sleep 60"]
sinks = ["file"]
`)
	d := runDaemon(t, dir, traced(t, trace, "all"))
	senders := startTraffic(t, d, p)
	senders.all["unixgram"] = send("unixgram", 1000, toDatagrams(t, "unixgram", d.path("gram.sock")))
	eventually(t, 20*time.Second, "messages from each source", func() bool {
		for name := range senders.all {
			if d.status().Sources[name].Received < 1000 {
				return false
			}
		}
		return d.status().Sources["sleeper"].Received == 1
	})
	senders.halt() // the TCP connection and the FIFO stay open
	eventually(t, 10*time.Second, "all is delivered", func() bool { return d.status().Sinks["file"].Buffered == 0 })
	quiet := awaitQuiet(t, trace)
	time.Sleep(3 * time.Second) // what is measured, not waited for
	calls := readFile(t, trace)[quiet:]
	// What the runtime does by itself, now and then: its scavenger gives memory
	// back after a load, its monitor looks at limits, its own poller is woken.
	own := regexp.MustCompile(`madvise|nanosleep|futex|sched_|epoll_pwait|pread64|<anon_inode:\[eventfd\]>|resumed>|^\s*<unfinished|^$`)
	for line := range strings.Lines(string(calls)) {
		if !own.MatchString(strings.TrimSpace(line)) {
			t.Errorf("an idle daemon makes a system call: %s", line)
		}
	}
	if n := bytes.Count(calls, []byte("\n")); n >= 200 {
		t.Errorf("%d system calls in 3 s without a message:\n%s", n, calls[:min(len(calls), 4000)])
	}
	d.stop()
	// It would cost whoever writes into them from then on.
	polls := regexp.MustCompile(`(?m)^.*(poll|epoll_ctl|select)\w*\(.*<(pipe:|\S+\.fifo>).*$`)
	for _, call := range polls.FindAll(untilTraced(t, trace), -1) {
		t.Errorf("a pipe is polled: %s", call)
	}
}

// awaitQuiet waits until a trace has not grown for half a second, and returns
// where its last line begins, which may be that of a call under way.
func awaitQuiet(t *testing.T, path string) (size int64) {
	t.Helper()
	since := time.Now()
	eventually(t, 10*time.Second, "half a second without a system call", func() bool {
		stat, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if stat.Size() != size {
			size, since = stat.Size(), time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
	return int64(bytes.LastIndexByte(readFile(t, path)[:size], '\n') + 1)
}
