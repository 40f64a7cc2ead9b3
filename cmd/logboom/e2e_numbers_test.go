package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keysOf are the keys of an object, sorted; nil if v is none.
func keysOf(v any) []string {
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	return slices.Sorted(maps.Keys(object))
}

func wantKeys(t *testing.T, what string, v any, want string) {
	t.Helper()
	if got := strings.Join(keysOf(v), " "); got != want {
		t.Errorf("keys of %s: %q, want %q", what, got, want)
	}
}

// numbersConf has every kind of number: two sources, one of them a program,
// that feed two sinks, one of which takes only a part.
const numbersConf = `runtime_dir = "run"
state_dir = "state"
[http]
address = "127.0.0.1:HTTP"
` + trafficSources + `
[program.app]
command = ["sh", "-c", "echo begun; exec sleep 60"]
sinks = ["some"]
[sink.file]
type = "file"
path = "log/$source.gz"
flush = "50ms"
[sink.some]
type = "file"
path = "some.log"
`

func TestStatusFields(t *testing.T) {
	p := freePorts(t)
	conf := fill(p.with(numbersConf), "HTTP", freePort(t, "tcp"), `["file"]`, `["file", "some"]`) + "match = { message = \"[05] \" }\n"
	d := startDaemon(t, conf)
	senders := startTraffic(t, d, p)
	eventually(t, 10*time.Second, "the program's line", func() bool { return d.status().Sources["app"].Received == 1 })
	senders.halt()
	code, stdout, stderr := shell(t, d.dir, "$logboom status --json")
	var status map[string]any
	if err := json.Unmarshal([]byte(stdout), &status); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	wantKeys(t, "the status", status, "balanced edges programs sinks sources")
	wantKeys(t, "sources", status["sources"], "app fifo tcp udp")
	for name, source := range status["sources"].(map[string]any) {
		wantKeys(t, name, source, "bytes kernel_dropped received truncated")
	}
	edges, _ := status["edges"].([]any)
	if len(edges) != 7 {
		t.Errorf("%d edges, want 7", len(edges))
	}
	for _, edge := range edges {
		wantKeys(t, "an edge", edge, "accepted dropped filtered sink source")
		if _, ok := edge.(map[string]any)["dropped"].(map[string]any); !ok {
			t.Errorf("dropped is no object: %v", edge)
		}
	}
	wantKeys(t, "sinks", status["sinks"], "file some")
	for name, sink := range status["sinks"].(map[string]any) {
		wantKeys(t, name, sink, "accepted buffered delivered last_error lost state")
		if _, ok := sink.(map[string]any)["lost"].(map[string]any); !ok {
			t.Errorf("lost is no object: %v", sink)
		}
	}
	wantKeys(t, "programs", status["programs"], "app")
	wantKeys(t, "a program", status["programs"].(map[string]any)["app"], "exit pid program restarts state")
	code, stdout, stderr = shell(t, d.dir, "$logboom status")
	for _, word := range []string{"fifo", "some", "app", "balanced: true"} {
		if code != 0 || !strings.Contains(stdout, word) {
			t.Errorf("exit code %d, no %q in the status: %s%s", code, word, stdout, stderr)
		}
	}
	d.stop()
}

// The numbers are balanced at any moment, and the test does the sums itself.
func TestBalanceUnderLoad(t *testing.T) {
	p := freePorts(t)
	conf := fill(p.with(numbersConf), "HTTP", freePort(t, "tcp"), `["file"]`, `["file", "some"]`) + "match = { message = \"[05] \" }\n"
	d := startDaemon(t, conf)
	senders := startTraffic(t, d, p)
	d.received(1)
	filtered := uint64(0)
	for range 200 {
		s := d.status()
		if !s.Balanced {
			t.Fatalf("not balanced: %+v", s)
		}
		for _, e := range s.Edges {
			filtered += e.Filtered
			if got := e.Accepted + e.Filtered + sum(e.Dropped); got != s.Sources[e.Source].Received {
				t.Fatalf("edge %+v has %d of %d received", e, got, s.Sources[e.Source].Received)
			}
		}
		for name, k := range s.Sinks {
			if got := k.Delivered + sum(k.Lost) + k.Buffered; got != k.Accepted {
				t.Fatalf("sink %s has %d of %d accepted: %+v", name, got, k.Accepted, k)
			}
		}
	}
	if filtered == 0 {
		t.Error("nothing was filtered")
	}
	sent := senders.halt()
	got := d.stop()
	total := wantEverything(t, sent, d.path("log", "*.gz"))
	if got.received != total+1 || got.dropped != 0 || got.lost != 0 || got.delivered <= total {
		t.Errorf("%+v of %d sent", got, total)
	}
	some := readFile(t, d.path("some.log"))
	lines := got.delivered - total
	if n := strings.Count(string(some), "\n"); n != lines {
		t.Errorf("%d lines in some.log, want %d", n, lines)
	}
	for name := range sent {
		wantInOrder(t, some, name)
	}
}

// Every series is there from the start, with the labels that are promised.
func TestMetrics(t *testing.T) {
	p := freePorts(t)
	port := freePort(t, "tcp")
	conf := fill(p.with(numbersConf), "HTTP", port, `["file"]`, `["file", "some"]`)
	d := startDaemon(t, conf)
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if code, body := get(t, base+path); code != 200 || body != want {
			t.Errorf("%s: %d %q, want 200 %q", path, code, body, want)
		}
	}
	if code, _ := get(t, base+"/status"); code != 404 {
		t.Errorf("/status by TCP: %d, want 404: it is the control socket's", code)
	}
	_, page := get(t, base+"/metrics")
	for _, series := range []string{
		`received_total{source="udp"}`, `received_bytes_total{source="udp"}`, `kernel_dropped_total{source="udp"}`,
		`truncated_total{source="udp"}`, `filtered_total{sink="some",source="udp"}`,
		`accepted_total{sink="file"}`, `delivered_total{sink="file"}`, `buffered{sink="file"}`, `notices_total{sink="file"}`,
		`delivered_bytes_total{sink="file"}`, `writes_total{sink="file"}`, `oldest_seconds{sink="file"}`,
		`write_seconds_bucket{sink="file",le="+Inf"}`, `write_seconds_sum{sink="file"}`, `write_seconds_count{sink="file"}`,
		`retries_total{sink="file"}`, `resent_total{sink="file"}`,
		`program_up{process="app",program="app"}`, `program_restarts_total{process="app",program="app"}`,
		`batches_total{cause="messages",sink="file"}`, `batches_total{cause="bytes",sink="file"}`,
		`batches_total{cause="age",sink="file"}`, `batches_total{cause="pressure",sink="file"}`,
		`batches_total{cause="reopen",sink="file"}`, `batches_total{cause="shutdown",sink="file"}`,
	} {
		if !strings.Contains(page, "\nlogboom_"+series+" ") {
			t.Errorf("no series logboom_%s", series)
		}
	}
	d.stop()
}

// While the daemon stops it lives, and is not ready.
func TestReadiness(t *testing.T) {
	port := freePort(t, "tcp")
	d := startDaemon(t, fill(`runtime_dir = "run"
state_dir = "state"
[http]
address = "127.0.0.1:PORT"
[program.slow]
command = ["sh", "-c", "trap 'sleep 1; exit' TERM; echo begun; while :; do sleep 0.01; done"]
sinks = ["file"]
[sink.file]
type = "file"
path = "all.log"
`, "PORT", port))
	d.received(1)
	d.signal(unix.SIGTERM)
	d.await("stopping", 5*time.Second)
	eventually(t, time.Second, "not ready", func() bool {
		code, _ := get(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
		return code == 503
	})
	if code, _ := get(t, fmt.Sprintf("http://127.0.0.1:%d/healthz", port)); code != 200 {
		t.Errorf("/healthz: %d, want 200", code)
	}
	wantSums(t, d.stopped(0), 1)
}
