package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a disk of its own on a folder that it makes.
func smallDisk(t *testing.T, dir string, size int) {
	t.Helper()
	needRoot(t, "mounts a tmpfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("logboom", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("a tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// fillUp takes all of a disk's room but a little: a write larger than that is
// cut short. free gives the room back.
func fillUp(t *testing.T, dir string, left int64) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "other")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	stat, statErr := f.Stat()
	if !errors.Is(err, unix.ENOSPC) || statErr != nil {
		t.Fatal(err, statErr)
	}
	if err := f.Truncate(stat.Size() - left); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

const diskConf = prelude + `
[memory]
cap = "CAP"
[source.fifo]
type = "fifo"
path = "in.fifo"
when_full = "FULL"
sinks = ["file"]
[sink.file]
type = "file"
path = "disk/NAME"
flush = "50ms"
`

// A disk that gets full and has room again costs no message, doubles none,
// and takes two lines of the own log.
func TestFullDisk(t *testing.T) { // FI06, GZ02
	for _, name := range []string{"all.gz", "all.log"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			smallDisk(t, filepath.Join(dir, "disk"), 16<<20)
			configure(t, dir, fill(diskConf, "CAP", "64MiB", "FULL", "block", "NAME", name))
			d := runDaemon(t, dir)
			s := send("fifo", 20000, toStream(openFIFO(t, d.path("in.fifo"))))
			eventually(t, 5*time.Second, "the file begins", func() bool { return d.status().Sinks["file"].Delivered > 1000 })
			free := fillUp(t, d.path("disk"), 3<<12)
			d.await("cannot deliver", 5*time.Second)
			// Some more tries, each of which may be cut short.
			eventually(t, 10*time.Second, "retries", func() bool { return d.metric(`logboom_retries_total{sink="file"}`) >= 4 })
			if state := d.status().Sinks["file"]; !strings.Contains(state.LastError, "no space left") {
				t.Errorf("status %+v, want the error", state)
			}
			if strings.HasSuffix(name, ".gz") {
				readGzip(t, d.path("disk", name)) // whole, though full
			}
			free()
			d.await("delivering again", 35*time.Second)
			sent := s.halt()
			got := d.stop()
			text := readFile(t, d.path("disk", name))
			if strings.HasSuffix(name, ".gz") {
				text = readGzip(t, d.path("disk", name))
			}
			wantAll(t, text, "fifo", sent)
			wantSums(t, got, sent)
			var said []entry
			for _, e := range d.entries("") {
				if e["sink"] != nil {
					said = append(said, e)
				}
			}
			if len(said) != 2 {
				t.Errorf("%d lines of the own log, want 2: %v", len(said), said)
			}
		})
	}
}

// A daemon that is stopped while its disk is full says how much it could not
// deliver, and leaves a whole file.
func TestStopOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	smallDisk(t, filepath.Join(dir, "disk"), 1<<20)
	configure(t, dir, strings.Replace(fill(diskConf, "CAP", "64MiB", "FULL", "block", "NAME", "all.gz"), `"20s"`, `"500ms"`, 1))
	d := runDaemon(t, dir)
	s := send("fifo", 20000, toStream(openFIFO(t, d.path("in.fifo"))))
	eventually(t, 5*time.Second, "the file begins", func() bool { return d.status().Sinks["file"].Delivered > 1000 })
	fillUp(t, d.path("disk"), 0)
	d.await("cannot deliver", 5*time.Second)
	sent := s.halt()
	d.signal(unix.SIGTERM)
	got := d.stopped(exitUndelivered)
	if got.received != sent || got.delivered+got.undelivered != sent || got.undelivered == 0 {
		t.Errorf("%+v, want %d received, some undelivered", got, sent)
	}
	wantAll(t, readGzip(t, d.path("disk", "all.gz")), "fifo", got.delivered)
}

// A source that waits for room when the daemon's time to stop is over drops what
// it has read: for a reason of its own, and as undelivered to whoever started
// the daemon.
func TestStopWhileWaitingForRoom(t *testing.T) {
	dir := t.TempDir()
	smallDisk(t, filepath.Join(dir, "disk"), 1<<20)
	configure(t, dir, strings.Replace(fill(diskConf, "CAP", "4MiB", "FULL", "block", "NAME", "all.gz"), `"20s"`, `"300ms"`, 1))
	fillUp(t, filepath.Join(dir, "disk"), 0)
	d := runDaemon(t, dir)
	s := send("fifo", 50000, toStream(openFIFO(t, d.path("in.fifo"))))
	awaitStall(t, d)
	d.signal(unix.SIGTERM)
	got := d.stopped(exitUndelivered)
	s.halt()
	if got.dropped == 0 || got.undelivered == 0 || got.received != got.dropped+got.undelivered {
		t.Errorf("%+v", got)
	}
	text := d.stderr.String()
	for _, want := range []string{
		`"dropping messages: stopped"`, `"messages were dropped: stopped"`,
		fmt.Sprintf("stopped with %d messages undelivered", got.undelivered+got.dropped),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "memory full") {
		t.Errorf("memory full is the reason:\n%s", text)
	}
}

// What happens when a sink's memory is full is the source's to say: drop,
// block, or block for a time and then drop. The numbers are exact, and memory
// is bounded.
func TestMemoryFull(t *testing.T) { // FI07, PI23
	for _, policy := range []string{"drop", "block", "300ms"} {
		t.Run(policy, func(t *testing.T) {
			dir := t.TempDir()
			smallDisk(t, filepath.Join(dir, "disk"), 32<<20)
			configure(t, dir, fill(diskConf, "CAP", "4MiB", "FULL", policy, "NAME", "all.gz"))
			d := runDaemon(t, dir)
			fifo := openFIFO(t, d.path("in.fifo"))
			s := send("fifo", 50000, toStream(fifo))
			eventually(t, 5*time.Second, "the file begins", func() bool { return d.status().Sinks["file"].Delivered > 1000 })
			free := fillUp(t, d.path("disk"), 0)
			d.await("cannot deliver", 5*time.Second)
			if policy == "block" {
				awaitStall(t, d)
			} else {
				d.await("dropping messages: memory full", 10*time.Second)
				eventually(t, 20*time.Second, "many dropped", func() bool { return d.metric("logboom_dropped_total") > 50000 })
			}
			if rss := d.residentKiB(); rss > 64<<10 {
				t.Errorf("%d KiB of memory with a cap of 4 MiB", rss)
			}
			free()
			d.await("delivering again", 35*time.Second)
			accepted := d.status().Sinks["file"].Accepted
			eventually(t, 10*time.Second, "messages are accepted again", func() bool { return d.status().Sinks["file"].Accepted > accepted+10000 })
			sent := s.halt()
			got := d.stop()
			if got.received != sent || got.delivered+got.dropped != sent || got.lost != 0 || (got.dropped > 0) != (policy != "block") {
				t.Errorf("%+v of %d sent", got, sent)
			}
			if lines := wantInOrder(t, readGzip(t, d.path("disk", "all.gz")), "fifo"); lines != got.delivered {
				t.Errorf("%d lines, %d delivered", lines, got.delivered)
			}
		})
	}
}

// awaitStall waits until the daemon takes no more messages.
func awaitStall(t *testing.T, d *instance) {
	t.Helper()
	var received uint64
	same := 0
	eventually(t, 20*time.Second, "the source is held up", func() bool {
		now := d.status().Sources["fifo"].Received
		if now != received {
			received, same = now, 0
		}
		same++
		return same > 50 && now > 0
	})
}

// residentKiB is how much memory the process takes up (proc(5)).
func (p *process) residentKiB() int {
	p.t.Helper()
	return p.memoryKiB("VmRSS")
}

// memoryKiB is a line of /proc/PID/status.
func (p *process) memoryKiB(name string) int {
	p.t.Helper()
	for line := range bytes.Lines(readFile(p.t, fmt.Sprintf("/proc/%d/status", p.pid()))) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	p.t.Fatalf("no %s", name)
	return 0
}
