package sink

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"logboom/buffer"
	"logboom/gzipwriter"
	"logboom/syslog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is longer than any test: what ends by it ends for another reason.
const never = time.Hour

// logbook keeps what is logged.
type logbook struct {
	mu    sync.Mutex // guards text
	text  bytes.Buffer
	lines []string // messages
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line struct{ Message string }
	if err := json.Unmarshal(p, &line); err != nil {
		return 0, err
	}
	l.lines = append(l.lines, line.Message)
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// count is the number of lines, or of those that have the word.
func (l *logbook) count(word string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// running is a sink that runs, with an arena of its own.
type running struct {
	*Sink
	t      testing.TB
	log    *logbook
	arena  *buffer.Arena
	giveUp chan struct{}
	done   chan int // gets what Run returns
}

func newArena(t testing.TB, size int) *buffer.Arena {
	t.Helper()
	arena, err := buffer.NewArena(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := arena.Close(); err != nil {
			t.Error(err)
		}
	})
	return arena
}

// makeSink makes a sink that does not run yet.
func makeSink(t testing.TB, conf Config, arena *buffer.Arena) *running {
	t.Helper()
	r := &running{t: t, log: new(logbook), arena: arena, giveUp: make(chan struct{}), done: make(chan int, 1)}
	r.Sink = New(conf, arena, zerolog.New(r.log))
	return r
}

// start runs a sink on an arena of 16 MiB.
func start(t testing.TB, conf Config) *running {
	t.Helper()
	r := makeSink(t, conf, newArena(t, 16<<20))
	r.run()
	return r
}

func (r *running) run() { go func() { r.done <- r.Run(r.giveUp) }() }

// finish closes the sink, waits until it has delivered all, and checks that
// every message is accounted for.
func (r *running) finish() Status {
	r.t.Helper()
	r.Close()
	select {
	case left := <-r.done:
		if left != 0 {
			r.t.Errorf("%d messages left", left)
		}
	case <-time.After(20 * time.Second):
		close(r.giveUp)
		r.t.Fatalf("the sink did not end: %d messages left; its log:\n%s", <-r.done, r.log)
	}
	r.Release()
	st := r.Status()
	checkBalance(r.t, st)
	return st
}

func checkBalance(t testing.TB, st Status) {
	t.Helper()
	lost := uint64(0)
	for _, n := range st.Lost {
		lost += n
	}
	if st.Accepted != st.Delivered+lost+st.Buffered {
		t.Errorf("accepted %d, but delivered %d, lost %d, buffered %d", st.Accepted, st.Delivered, lost, st.Buffered)
	}
}

// fileConf is that of a file sink whose batches end when a test says so.
func fileConf(t testing.TB, path string) Config {
	t.Helper()
	p, err := ParsePath(path)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Name:   "s",
		Limits: buffer.Limits{Messages: 1 << 20, Bytes: 256 << 10, Flush: never},
		Memory: 8 << 20,
		Path:   p,
		File: File{
			Compress: compressionOf(path), Level: 1, Mode: 0o640, DirMode: 0o750,
			UID: -1, GID: -1, MaxOpen: 100,
		},
		Retry: Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond},
	}
}

// compressionOf goes by the name.
func compressionOf(path string) gzipwriter.Format {
	switch filepath.Ext(path) {
	case ".gz":
		return gzipwriter.Gzip
	case ".zst":
		return gzipwriter.Zstd
	}
	return gzipwriter.Plain
}

// message is one that says text, received now.
func message(text string) syslog.Message {
	m := syslog.Message{Received: time.Now()}
	m.Priority, m.Message = syslog.DefaultPriority, []byte(text)
	return m
}

func fromHost(host, text string) syslog.Message {
	m := message(text)
	m.Host = []byte(host)
	return m
}

// put appends one message, which must be taken.
func put(t testing.TB, e *Edge, ms ...syslog.Message) {
	t.Helper()
	if tally := e.Append(new(Origin), ms); tally != (Tally{Accepted: uint64(len(ms))}) {
		t.Fatalf("tally %+v for %d messages", tally, len(ms))
	}
}

// eventually polls what the kernel or another goroutine brings about.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// delivered waits until the sink has delivered n messages.
func (r *running) delivered(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d delivered", n), func() bool { return r.Status().Delivered == uint64(n) })
}

// read is the text of a file, inflated where its name ends in .gz by the
// standard library, which takes nothing but whole members.
func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(filepath.Base(path), ".gz") {
		return string(data)
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(text)
}

// members are those of a file, which must be whole.
func members(t testing.TB, path string) (all []gzipwriter.Member) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := gzipwriter.ScanMembers(bytes.NewReader(data), int64(len(data)))
	for s.Next() {
		if s.Member().Text == 0 {
			t.Errorf("%s: an empty member at %d", path, s.Member().Offset)
		}
		all = append(all, s.Member())
	}
	if s.Err() != nil {
		t.Fatalf("%s: %v", path, s.Err())
	}
	return all
}

// files are the paths of all files below a folder; none may be empty.
func filesBelow(t testing.TB, folder string) (paths []string) {
	t.Helper()
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			paths = append(paths, path)
			if info.Size() == 0 {
				t.Errorf("%s is empty", path)
			}
		}
		if os.IsNotExist(err) {
			return nil // removed since the folder was read
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// descriptors is how many this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
