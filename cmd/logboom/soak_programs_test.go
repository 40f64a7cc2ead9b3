package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// long is how long a test lasts that is run for its length: short, or in a
// soak long.
func long(short, soak time.Duration) time.Duration {
	if os.Getenv("LOGBOOM_SOAK") == "" {
		return short
	}
	return soak
}

// cpuTime is what a process used so far, its children not included: user and
// system time of /proc/PID/stat, in ticks of 10 ms.
func (p *process) cpuTime() time.Duration {
	p.t.Helper()
	text := string(readFile(p.t, fmt.Sprintf("/proc/%d/stat", p.pid())))
	words := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	var ticks int
	for _, word := range words[11:13] {
		n, err := strconv.Atoi(word)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// zombies counts the children of a process that it has not reaped.
func (p *process) zombies() (n int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // which may be gone
		_, rest, _ := bytes.Cut(text, []byte(") "))
		if bytes.HasPrefix(rest, fmt.Appendf(nil, "Z %d ", p.pid())) {
			n++
		}
	}
	return n
}

// 200 programs that crash at once, all the time, with the delays that they have
// by default in the end, or in a sixth of that: next to no processor time, no
// zombie, no descriptor more.
func TestCrashLoopsSoak(t *testing.T) {
	longest := long(10*time.Second, time.Minute)
	d := startDaemon(t, prelude+fill(`
[program.crash]
command = ["sh", "-c", "echo no; exit 1"]
numprocs = 200
startretries = -1
backoff = { min = "MIN", max = "MAX" }
sinks = ["out"]
`, "MIN", longest/2, "MAX", longest)+plainSink)
	starts := func() int { return int(d.metric("logboom_program_restarts_total{")) }
	settled := func() (n int) {
		for _, p := range d.status().Programs {
			if p.State == "BACKOFF" {
				n++
			}
		}
		return n
	}
	eventually(t, 20*time.Second, "all have crashed", func() bool { return settled() == 200 })
	descriptors := d.descriptors()
	eventually(t, 2*longest, "all crash again and again", func() bool { return starts() > 200 })
	began, before, first := time.Now(), d.cpuTime(), starts()
	time.Sleep(long(6*time.Second, 20*time.Second)) // the time that is measured
	took, used, last := time.Since(began), d.cpuTime()-before, starts()
	share := used.Seconds() / took.Seconds()
	byDefault := share * longest.Minutes()
	t.Logf("%.1f restarts a second: %.2f %% of a core, %v each; with the default backoff %.2f %%",
		float64(last-first)/took.Seconds(), 100*share, used/time.Duration(max(last-first, 1)), 100*byDefault)
	if byDefault >= 0.05 {
		t.Errorf("%.1f %% of a core", 100*byDefault)
	}
	if last-first < 30 {
		t.Errorf("only %d restarts", last-first)
	}
	eventually(t, 10*time.Second, "no zombies", func() bool { return d.zombies() == 0 })
	eventually(t, 10*time.Second, fmt.Sprintf("%d descriptors, as before", descriptors), func() bool { return d.descriptors() <= descriptors })
	d.stop()
}

// wantWorkerLines checks the log of PHP workers: each line of each of them once,
// in order and byte for byte. It returns how many there were.
func wantWorkerLines(t *testing.T, path string, workers ...string) (total int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	next, done := make(map[string]int), make(map[string]string)
	in := bufio.NewReaderSize(text, 1<<20)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			break // of a whole file at its end alone, as the last lines say
		}
		line = line[:len(line)-1]
		name, rest, _ := strings.Cut(string(line[:min(len(line), 30)]), " ")
		if count, ok := strings.CutPrefix(rest, "done "); ok {
			done[name] = count
			continue
		}
		n := next[name]
		sum := md5.Sum([]byte(strconv.Itoa(n)))
		head := fmt.Sprintf("%s %09d ", name, n)
		body := strings.Repeat(hex.EncodeToString(sum[:]), 313)
		if len(line) != 9999 || string(line) != head+body[:9999-len(head)] {
			t.Fatalf("want line %d of %q whole: %d bytes: %.60q", n, name, len(line), line)
		}
		next[name]++
		total++
	}
	for _, name := range workers {
		if done[name] != strconv.Itoa(next[name]) || next[name] == 0 {
			t.Errorf("%s: %d lines, it wrote %q", name, next[name], done[name])
		}
	}
	return total
}

// PHP workers that log by Monolog at full speed: each a process of the program,
// or behind a parent as RoadRunner is one.
func TestPHPWorkersSoak(t *testing.T) {
	need(t, "php")
	if _, err := os.Stat("/usr/share/php/Monolog/autoload.php"); err != nil {
		t.Skipf("php-monolog is not installed here: %v", err)
	}
	for name, command := range map[string]string{
		"processes":     `["php", "SCRIPTS/worker.php", "w%(process_num)d", "SECONDS"]` + "\nnumprocs = 2\nnumprocs_start = 1",
		"behind parent": `["php", "SCRIPTS/parent.php", "SECONDS"]`,
	} {
		t.Run(name, func(t *testing.T) {
			scripts, err := filepath.Abs("testdata/e2e")
			if err != nil {
				t.Fatal(err)
			}
			seconds := long(3*time.Second, time.Minute)
			d := startDaemon(t, prelude+fill(`
[program.app]
command = COMMAND
startsecs = 0
autorestart = false
stdout = []
stderr = ["app"]
[sink.app]
type = "file"
path = "app.log.gz"
`, "COMMAND", fill(command, "SCRIPTS", scripts, "SECONDS", seconds.Seconds())))
			eventually(t, seconds+time.Minute, "the workers end", func() bool {
				programs := d.status().Programs
				for _, p := range programs {
					if p.State != "EXITED" || p.Exit != "exit status 0" {
						return false
					}
				}
				return len(programs) > 0
			})
			got := d.stop()
			n := wantWorkerLines(t, d.path("app.log.gz"), "w1", "w2")
			wantSums(t, got, n+2)
			t.Logf("%d lines, %.0f MB/s", n, float64(n)/100/seconds.Seconds())
		})
	}
}
