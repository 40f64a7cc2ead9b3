package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"logboom/bench/load"
)

// A floor writes what it gets: in C where there is a compiler, and in Go.
func TestIngestMeasuresFloors(t *testing.T) {
	b := testBench(t)
	floors := b.floors
	if _, err := exec.LookPath("cc"); err == nil {
		floors = append(floors, floor{"floor: Go", []string{b.self, floorCommand}})
	}
	set := load.NewMessages(1)
	for i, f := range floors {
		for _, network := range []string{"udp", "unixgram"} {
			dir := filepath.Join(b.dir, fmt.Sprint(network, i))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			sample, err := b.ingest(t.Context(), f.receiver(), dir, work{network: network, queue: queueLength, batch: 1, set: set, senders: 1, rate: 500})
			if err != nil {
				t.Errorf("%s, %s: %v", f.name, network, err)
				continue
			}
			for _, never := range []string{"duplicates", "disorder", "damaged"} {
				if sample[never] != 0 {
					t.Errorf("%s, %s: %s %v", f.name, network, never, sample[never])
				}
			}
			if sample["lost"] > 10 && (network == "udp" || b.netns) {
				t.Errorf("%s, %s: %v %% lost", f.name, network, sample["lost"])
			}
			if sample["cpu"] <= 0 || sample["cpu"] > 10_000 || sample["packing"] < 2 || sample["writes"] <= 0 {
				t.Errorf("%s, %s: %v", f.name, network, sample)
			}
		}
	}
}

// What the floor that discards loses is what the kernel refused.
func TestQueueMeasuresTheDiscardingFloor(t *testing.T) {
	b := testBench(t)
	if len(b.discard) == 0 || !b.netns {
		t.Skip("it wants a C compiler with zlib, and root for a network namespace")
	}
	r := b.discard[0]
	w := work{network: "unixgram", queue: queueLength, batch: 1, set: load.NewMessages(1), senders: 1, rate: 500}
	sample, err := b.ingest(t.Context(), r, t.TempDir(), w)
	if err != nil || sample["lost"] != 0 || sample["cpu"] <= 0 {
		t.Errorf("a long queue, 500 a second: %v, %v", sample, err)
	}
	w.queue, w.rate = 0, 100_000
	sample, err = b.ingest(t.Context(), r, t.TempDir(), w)
	if err != nil || sample["lost"] <= 0 || sample["lost"] >= 100 {
		t.Errorf("a queue of one, 100,000 a second: %v, %v", sample, err)
	}
}

func TestAReceiverThatFailsIsSaid(t *testing.T) {
	b := testBench(t)
	f := floor{"floor", []string{"sh", "-c", "echo no such luck >&2; exit 1"}}
	_, err := b.ingest(t.Context(), f.receiver(), t.TempDir(), work{network: "udp", batch: 1, set: load.NewMessages(1), senders: 1, rate: 1000})
	if err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("error %v does not say what the receiver said", err)
	}
}

func TestPipeMeasuresReaders(t *testing.T) {
	b := testBench(t)
	for _, r := range b.pipeReaders() {
		if _, err := exec.LookPath(r.command[0]); err != nil {
			t.Logf("%s is not measured: %v", r.name, err)
			continue
		}
		c := pipeCase{size: 120, rate: 2000}
		sample, err := b.pipe(t.Context(), r, c, load.NewLines(c.size-1), t.TempDir())
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		if sample["lost"] != 0 || sample["speed"] <= 0 || sample["cpu"] <= 0 || sample["p50"] > sample["p999"] || sample["p999"] > sample["longest"]*1000 {
			t.Errorf("%s: %v", r.name, sample)
		}
	}
}

func TestLoaders(t *testing.T) {
	const wrkText = `Running 5s test @ http://127.0.0.1:1/
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.23ms    2.10ms  52.13ms   95.55%
  371234 requests in 5.01s, 57.11MB read
Requests/sec:  74098.60
Transfer/sec:     11.40MB
`
	const abText = `Concurrency Level:      1000
Complete requests:      50000
Failed requests:        0
Requests per second:    12345.67 [#/sec] (mean)
`
	for name, test := range map[string]struct {
		loader loader
		text   string
		want   answered
		ok     bool
	}{
		"wrk":           {wrk(100), wrkText, answered{74098.6, 371234}, true},
		"wrk, refused":  {wrk(100), wrkText + "  Non-2xx or 3xx responses: 12\n", answered{}, false},
		"ab":            {ab(1000), abText, answered{12345.67, 50000}, true},
		"ab, refused":   {ab(1000), abText + "Non-2xx responses:      3\n", answered{}, false},
		"ab, no answer": {ab(1000), "apr_socket_recv: Connection refused (111)\n", answered{}, false},
	} {
		if got, err := test.loader.parse(test.text); got != test.want || (err == nil) != test.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestHandledRequests(t *testing.T) {
	const page = "Active connections: 101 \nserver accepts handled requests\n 101 101 371335 \nReading: 0 Writing: 1 Waiting: 100 \n"
	if got, err := handledRequests(page); got != 371334 || err != nil {
		t.Errorf("%d, %v; want all but the one for the page", got, err)
	}
	for _, page := range []string{"", "hello", "server accepts handled requests\n 1 1 1 \n"} {
		if got, err := handledRequests(page); err == nil {
			t.Errorf("%q is taken for %d requests", page, got)
		}
	}
}

func TestCountRecords(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	record := "[2025-11-30T10:00:00.123456+00:00] octane.INFO: " + long + " [] []\n"
	const server = "[Sun Nov 30 10:00:00 2025] 127.0.0.1:5000 Accepted\n"
	for name, test := range map[string]struct {
		text        string
		whole, torn int
	}{
		"whole":            {server + record + server + record, 2, 0},
		"in each other":    {record[:4096] + record + record[4096:], 0, 2},
		"another's within": {record[:4096] + server + record[4096:], 0, 2},
		"cut off":          {record + record[:5000], 1, 1},
		"the head alone":   {"[2025-11-30T10:00:00.123456+00:00] octane.INFO:\n", 0, 1},
		"too long":         {strings.Replace(record, "xx", "xxx", 1), 0, 1},
		"none":             {server, 0, 0},
	} {
		whole, torn := 0, 0
		if err := countRecords(&whole, &torn)(iotest.HalfReader(strings.NewReader(test.text))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if whole != test.whole || torn != test.torn {
			t.Errorf("%s: %d whole, %d torn; want %d and %d", name, whole, torn, test.whole, test.torn)
		}
	}
}

func TestReadOutput(t *testing.T) {
	dir := t.TempDir()
	var packed bytes.Buffer
	for _, member := range []string{"one\n", "two\n"} {
		w := gzip.NewWriter(&packed)
		w.Write([]byte(member))
		w.Close()
	}
	for name, content := range map[string][]byte{"a.gz": packed.Bytes(), "b.log": []byte("three\n"), "torn.gz": packed.Bytes()[:packed.Len()-3]} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines := 0
	size, err := readOutput(filepath.Join(dir, "[ab].*"), countLines(&lines))
	if want := int64(packed.Len() + len("three\n")); size != want || lines != 3 || err != nil {
		t.Errorf("%d lines in %d bytes, want 3 in %d: %v", lines, size, want, err)
	}
	for _, bad := range []string{"none*", "torn.gz"} {
		if _, err := readOutput(filepath.Join(dir, bad), countLines(&lines)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
