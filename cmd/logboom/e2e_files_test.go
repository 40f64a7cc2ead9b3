package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manyConf files messages by host and day; no message may be dropped.
const manyConf = prelude + `
[source.in]
type = "syslog"
listen = "unix://in.sock"
sinks = ["file"]
[sink.file]
type = "file"
path = "log/$host/access-%Y-%m-%d.log.gz"
max_open = 500
max_new_files = 20000
`

// Ten thousand paths at once, with few descriptors and bounded memory: every
// message is there once.
func TestTenThousandPaths(t *testing.T) { // FI05
	const hosts, messages, maxOpen = 10_000, 200_000, 500
	d := startDaemon(t, manyConf)
	c := dial(t, "unix", d.path("in.sock"))
	begin := time.Now()
	most, resident := 0, 0
	look := func() {
		most, resident = max(most, d.descriptors()), max(resident, d.residentKiB())
	}
	var frames []byte
	for n := range messages {
		// A stride that has no factor in common mixes the order up.
		frames = fmt.Appendf(frames, "<14>Mar 15 10:20:30 host%d nginx: 192.0.2.1 - - \"GET /%d HTTP/1.1\" 200 1234 \"-\" \"a browser of some length\"\n", n*7919%hosts, n)
		if n%1000 == 999 {
			if _, err := c.Write(frames); err != nil {
				t.Fatal(err)
			}
			frames = frames[:0]
			look()
		}
	}
	eventually(t, time.Minute, "all is delivered", func() bool {
		look()
		return d.status().Sinks["file"].Delivered == messages
	})
	took := time.Since(begin)
	t.Logf("%d messages to %d paths in %v: at most %d descriptors, %d MiB resident", messages, hosts, took.Round(time.Millisecond), most, resident>>10)
	if most > maxOpen+30 { // beside the files: the log, sockets, the poller and what belongs to Go
		t.Errorf("%d descriptors with max_open = %d", most, maxOpen)
	}
	if resident > 150<<10 {
		t.Errorf("%d KiB resident", resident)
	}
	wantSums(t, d.stop(), messages)
	files, seen := 0, make([]bool, messages)
	number := regexp.MustCompile(`GET /(\d+) `)
	err := filepath.WalkDir(d.path("log"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		host := filepath.Base(filepath.Dir(path))
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		text, err := inflate(file)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for line := range bytes.Lines(text) {
			var n int
			found := number.FindSubmatch(line)
			if found == nil {
				return fmt.Errorf("%s: line %q", path, line)
			}
			fmt.Sscan(string(found[1]), &n)
			if seen[n] || host != fmt.Sprint("host", n*7919%hosts) {
				return fmt.Errorf("%s: line %q is twice or of another", path, line)
			}
			seen[n] = true
		}
		return nil
	})
	if code, _, stderr := shell(t, d.path("log"), "find . -name '*.gz' -print0 | xargs -0 gzip -t"); code != 0 {
		t.Errorf("gzip -t: %s", stderr)
	}
	if err != nil || files != hosts || slices.Contains(seen, false) {
		t.Errorf("%d files of %d, all messages %v, %v", files, hosts, !slices.Contains(seen, false), err)
	}
}

// rotatingConf rotates before every batch but the first.
const rotatingConf = prelude + `
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
when_full = "block"
sinks = ["file"]
[sink.file]
type = "file"
path = "log/app.log.gz"
messages = 1
rotate = { size = "4KiB", every = "1d" }
keep = { files = 1000 }
symlink = "log/current"
fsync = "FSYNC"
`

// longLine does not fit in a file together with another.
func longLine(i int) []byte {
	line := fmt.Appendf(nil, "%d ", i)
	for x := uint64(i)*0x9e3779b97f4a7c15 + 1; len(line) < 4000; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		line = append(line, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[x%64])
	}
	return append(line, '\n')
}

// linesOf are the first words of all lines in the files of a rotated one, in
// order.
func linesOf(t *testing.T, folder string) (words []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "app*.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		for line := range strings.Lines(string(readGzip(t, path))) {
			word, _, _ := strings.Cut(line, " ")
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return words
}

// A rotation makes these calls, in this order; and with fsync = "batch" each
// write is synced before anything else is done.
func TestSystemCallsOfRotation(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	d := startDaemon(t, fill(rotatingConf, "FSYNC", "batch"), traced(t, trace, "write,fsync,fdatasync,openat,renameat2,renameat,rename,symlinkat,symlink"))
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	for i := range 2 {
		if err := write(longLine(i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "both are delivered", func() bool { return d.status().Sinks["file"].Delivered == 2 })
	d.stop()
	var calls []string
	name := regexp.MustCompile(`^\d+ +([a-z0-9]+)\((.*)`) // a long call has its end in another line
	for line := range strings.Lines(string(untilTraced(t, trace))) {
		m := name.FindStringSubmatch(line)
		switch {
		case m == nil || !strings.Contains(m[2], "/log>") && !strings.Contains(m[2], "/app.log.gz>") && !strings.Contains(m[2], "current"):
		case m[1] == "openat" && !(strings.Contains(m[2], "O_CREAT") && strings.Contains(m[2], "app.log.gz")):
		default:
			calls = append(calls, m[1])
		}
	}
	first := "openat write fdatasync symlinkat renameat fsync"
	want := first + " fsync renameat2 openat write fdatasync fsync"
	if got := strings.Join(calls, " "); got != want {
		t.Errorf("calls\n%s\nwant\n%s", got, want)
	}
	if got := linesOf(t, d.path("log")); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("lines %q", got)
	}
}

// A kill -9 at any call of a rotation: every file is whole, nothing is lost
// but what was in memory, and the next start finds nothing to clean up that it
// does not.
func TestKillAtEachCallOfRotation(t *testing.T) { // GZ01
	need(t, "strace")
	const later = 100_000 // the number of the first line after the kill
	for _, at := range []string{
		"renameat2:when=1", "renameat2:when=2", "symlinkat:when=1", "renameat:when=1",
		"fsync:when=1", "fsync:when=2", "fsync:when=3", "fsync:when=4", "fdatasync:when=2", "fdatasync:when=3",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			call, when, _ := strings.Cut(at, ":")
			d := startDaemon(t, fill(rotatingConf, "FSYNC", "batch"), behind("strace", "-D", "-f", "-qq", "-o", "/dev/null",
				"-e", "trace="+call, "-e", "inject="+call+":signal=KILL:"+when))
			write := toDatagrams(t, "unixgram", d.path("in.sock"))
			// The calls of each thread are counted by themselves: some have to
			// come before one of them has made so many.
			line := 0
			eventually(t, 30*time.Second, "it is killed", func() bool {
				select {
				case <-d.exited:
					return true
				default:
					write(longLine(line)) // fails if it was killed just now
					line++
					return false
				}
			})
			before := linesOf(t, d.path("log")) // which are whole, or this fails
			next := runDaemon(t, d.dir)
			write = toDatagrams(t, "unixgram", d.path("in.sock"))
			for i := range 3 {
				if err := write(longLine(later + i)); err != nil {
					t.Fatal(err)
				}
			}
			next.received(3)
			next.stop()
			after := linesOf(t, d.path("log"))
			for i := range 3 {
				before = append(before, fmt.Sprint(later+i))
			}
			for _, word := range before {
				if !slices.Contains(after, word) {
					t.Errorf("%s is missing of %q", word, after)
				}
			}
			if len(slices.Compact(slices.Clone(after))) != len(after) {
				t.Errorf("lines are there twice: %q", after)
			}
			files, err := os.ReadDir(d.path("log"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if name := file.Name(); name != "current" && (!strings.HasPrefix(name, "app") || !strings.HasSuffix(name, ".log.gz")) {
					t.Errorf("%s is left", name)
				}
			}
			if to, err := os.Readlink(d.path("log", "current")); err != nil || to != "app.log.gz" {
				t.Errorf("the symbolic link leads to %q, %v", to, err)
			}
		})
	}
}

// Two commands on one file take turns: the second says which file it waits
// for, and its lines come after all of the first's.
func TestTwoPipes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.gz")
	begin := func() (*process, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		cmd := plainCommand(t, dir, "pipe", "--to", path, "--messages", "1")
		cmd.Stdin = r
		return spawn(t, cmd), w
	}
	say := func(w *os.File, text string) {
		if _, err := w.WriteString(text + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	first, toFirst := begin()
	say(toFirst, "first 1")
	eventually(t, 5*time.Second, "the file begins", func() bool {
		stat, err := os.Stat(path)
		return err == nil && stat.Size() > 0
	})
	second, toSecond := begin()
	say(toSecond, "second 1")
	eventually(t, 5*time.Second, "the second waits", func() bool {
		return strings.Contains(second.stderr.String(), path+": another writer has it")
	})
	say(toFirst, "first 2")
	say(toSecond, "second 2")
	toFirst.Close()
	if code := first.wait(5 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	toSecond.Close()
	if code := second.wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := string(readGzip(t, path)); got != "first 1\nfirst 2\nsecond 1\nsecond 2\n" {
		t.Errorf("%q", got)
	}
}

// Two daemons on one file never mix: the second keeps its messages and says
// which file it is, and goes on when the first has ended.
func TestTwoDaemonsOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.gz")
	conf := strings.Replace(gramConf, `path = "all.gz"`, fmt.Sprintf("path = %q", path), 1)
	first, second := startDaemon(t, conf), startDaemon(t, conf)
	for i, d := range []*instance{first, second} {
		if err := toDatagrams(t, "unixgram", d.path("in.sock"))(fmt.Appendf(nil, "<14>Mar 15 10:20:30 h a: %d\n", i)); err != nil {
			t.Fatal(err)
		}
		d.received(1)
		if d == first {
			eventually(t, 5*time.Second, "it is delivered", func() bool { return d.status().Sinks["file"].Delivered == 1 })
		}
	}
	said := second.await("cannot deliver", 5*time.Second)
	if text, _ := said["error"].(string); text != "lock "+path+": another writer has it" {
		t.Errorf("it says %q", text)
	}
	wantSums(t, first.stop(), 1)
	eventually(t, 10*time.Second, "the second's turn", func() bool { return second.status().Sinks["file"].Delivered == 1 })
	wantSums(t, second.stop(), 1)
	if got := string(readGzip(t, path)); got != "0\n1\n" {
		t.Errorf("%q", got)
	}
}

// The file of the daemon is removed from outside: it is noticed without a
// signal, and no daemon writes into what has no name.
func TestFileIsRemoved(t *testing.T) {
	d := startDaemon(t, gramConf)
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	n := 0
	put := func() {
		n++
		if err := write(numbered(nil, "in", n)); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "it is delivered", func() bool { return d.status().Sinks["file"].Delivered == uint64(n) })
	}
	put()
	if err := unix.Unlink(d.path("all.gz")); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "it is made anew", func() bool {
		put()
		_, err := os.Stat(d.path("all.gz"))
		return err == nil
	})
	d.stop()
	if text := readGzip(t, d.path("all.gz")); len(text) == 0 {
		t.Error("the new file is empty")
	}
}

// What is written in zstd is read by zstd(1) and by logboom's own commands.
func TestPipeZstd(t *testing.T) { // GZ12
	need(t, "zstd")
	code, stdout, stderr := shell(t, t.TempDir(), `seq 1000 >want
$logboom pipe --to out.zst --messages 100 <want || exit 1
zstd -dcq out.zst | cmp - want || exit 2
$logboom cat out.zst | cmp - want || exit 3
$logboom verify out.zst`)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "10 members") || !strings.Contains(stdout, "1000 messages") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}
