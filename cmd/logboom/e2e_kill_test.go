package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// killWorld is what outlives the daemons of a test: sockets and a FIFO that the
// test holds, senders that never stop, and a runtime directory in memory.
type killWorld struct {
	t        *testing.T
	dir      string
	udp      *os.File
	sockets  setting
	senders  map[string]*sender // by source
	peers    map[string]*connections
	programs *programRuns
	binary   string
	messages int // delivered in all
	daemons  []*instance
}

const killConf = `runtime_dir = "RUNTIME"
state_dir = "state"
[http]
address = ""
[memory]
cap = "16MiB"
[batch]
messages = 300
flush = "20ms"
[source.udp]
type = "syslog"
listen = "udp://127.0.0.1:PORT"
receive_buffer = "1MiB"
when_full = "block"
sinks = ["gz", "plain"]
[source.unixgram]
type = "syslog"
listen = "unixgram://held.sock"
when_full = "block"
sinks = ["gz", "plain"]
[source.fifo]
type = "fifo"
path = "fifo"
when_full = "block"
sinks = ["gz", "plain"]
[source.severities]
type = "fifo"
path = "severities"
severity = "auto"
when_full = "block"
sinks = ["gz", "plain"]
[source.records]
type = "fifo"
path = "records"
multiline = { start = '^records \d*[05] ' }
when_full = "block"
sinks = ["gz", "plain"]
[source.tcp]
type = "syslog"
listen = "tcp://127.0.0.1:TCP"
format = "raw"
sinks = ["gz", "plain"]
[source.stream]
type = "syslog"
listen = "unix://stream.sock"
format = "raw"
sinks = ["gz", "plain"]
[program.prog]
command = ["SELF"]
environment = { LOGBOOM_TEST_COUNTING = "FOLDER" }
prefix = "P "
multiline = { start = '^prog \d*[05] ' }
when_full = "block"
sinks = ["gz", "plain"]
[sink.gz]
type = "file"
path = "gz/$source.gz"
rotate = { size = "200KiB" }
[sink.plain]
type = "file"
path = "plain/$source.log"
`

// tmpfsDir is a folder in memory, as a runtime directory is.
func tmpfsDir(t *testing.T) string {
	t.Helper()
	if !isOnTmpfs("/dev/shm") {
		t.Skip("/dev/shm is no tmpfs here")
	}
	dir, err := os.MkdirTemp("/dev/shm", "logboom-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newKillWorld starts the senders of a new world.
func newKillWorld(t *testing.T, binary string) *killWorld {
	t.Helper()
	w := &killWorld{t: t, dir: t.TempDir(), binary: binary, senders: make(map[string]*sender)}
	w.programs = &programRuns{t: t, dir: t.TempDir(), known: make(map[string]*stretch)}
	w.udp = heldSocket(t, unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err := unix.SetsockoptInt(int(w.udp.Fd()), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20); err != nil {
		t.Log("a small receive buffer:", err)
	}
	gram := heldSocket(t, unix.AF_UNIX, &unix.SockaddrUnix{Name: w.dir + "/held.sock"})
	w.sockets = activated(w.udp, gram)
	name, err := unix.Getsockname(int(w.udp.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	port := name.(*unix.SockaddrInet4).Port
	tcp := freePort(t, "tcp")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	configure(t, w.dir, fill(killConf, "PORT", port, "TCP", tcp, "RUNTIME", tmpfsDir(t), "SELF", self, "FOLDER", w.programs.dir))
	w.peers = map[string]*connections{
		"tcp": {t: t, dial: func() (net.Conn, error) { return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", tcp)) }},
		"stream": {t: t, dial: func() (net.Conn, error) {
			name := fmt.Sprintf("%s/peer%d", w.dir, time.Now().UnixNano())
			return net.DialUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}, &net.UnixAddr{Name: w.dir + "/stream.sock", Net: "unix"})
		}},
	}
	for name, peer := range w.peers {
		w.senders[name] = send(name, 4000, peer.write)
		t.Cleanup(func() {
			if c := peer.current(); c != nil {
				c.Close()
			}
		})
	}
	w.senders["fifo"] = send("fifo", 20000, toStream(heldFIFO(t, w.dir+"/fifo")))
	w.senders["records"] = send("records", 5000, toStream(heldFIFO(t, w.dir+"/records")))
	w.senders["severities"] = send("severities", 5000, withSeverities(toStream(heldFIFO(t, w.dir+"/severities"))))
	w.senders["udp"] = send("udp", 40000, toDatagrams(t, "udp", fmt.Sprintf("127.0.0.1:%d", port)))
	w.senders["unixgram"] = send("unixgram", 4000, toDatagrams(t, "unixgram", w.dir+"/held.sock"))
	return w
}

// withSeverities writes before each line, one after the other, what severity =
// "auto" knows.
func withSeverities(write func([]byte) error) func([]byte) error {
	n := 0
	var text []byte
	return func(line []byte) error {
		text = append(append(text[:0], severityMarks[n%len(severityMarks)]...), line...)
		n++
		return write(text)
	}
}

var severityMarks = []string{"[t] a.ERROR: ", "", "[t] a.INFO: ", "[t] a.DEBUG: "}

// withoutMarks takes off what sources of the config have put before lines, or
// between them, and what withSeverities has.
var withoutMarks = strings.NewReplacer("#012", "\n", "P prog ", "prog ", severityMarks[0], "", severityMarks[2], "", severityMarks[3], "")

// heldFIFO makes a FIFO that has a reader whoever comes and goes.
func heldFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fifo.Close() })
	return fifo
}

// run starts a daemon and does not wait for anything.
func (w *killWorld) run(environment ...string) *instance {
	w.t.Helper()
	cmd := exec.Command(w.binary, "run", "-c", filepath.Join(w.dir, "conf.toml"))
	w.sockets(cmd)
	cmd.Env = append(cmd.Env, environment...)
	d := &instance{process: spawn(w.t, cmd), dir: w.dir}
	w.daemons = append(w.daemons, d)
	return d
}

// troubles are the warnings and errors of all daemons.
func (w *killWorld) troubles() string {
	var all strings.Builder
	for i, d := range w.daemons {
		for line := range strings.Lines(d.stderr.String()) {
			if !strings.Contains(line, `"level":"info"`) {
				fmt.Fprintf(&all, "daemon %d: %s", i, line)
			}
		}
	}
	return all.String()
}

// drops is how many datagrams the kernel has dropped on the UDP socket since it
// was made: SK_MEMINFO_DROPS of SO_MEMINFO (linux/sock_diag.h).
func (w *killWorld) drops() int {
	w.t.Helper()
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, w.udp.Fd(), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		w.t.Fatal(errno)
	}
	return int(info[8])
}

// finish ends the senders, lets a last daemon deliver what is left, and
// compares what was sent with what is in the files.
func (w *killWorld) finish() {
	w.t.Helper()
	programs := w.programs.count()
	d := w.run()
	d.await("started", 20*time.Second)
	eventually(w.t, 20*time.Second, "the program runs", func() bool { return w.programs.count() > programs })
	for name, s := range w.senders {
		s.halt()
		if s.err != nil {
			w.t.Errorf("%s: sending failed: %v", name, s.err)
		}
	}
	for _, peer := range w.peers {
		peer.end()
	}
	d.stop()
	w.programs.end()
	defer func() {
		if w.t.Failed() {
			w.t.Log(w.troubles())
		}
	}()
	for name, peer := range w.peers {
		for _, kind := range []string{"gz/" + name + "*.gz", "plain/" + name + "*.log"} {
			w.messages += wantStretches(w.t, kind, w.text(kind, name), peer.all)
		}
	}
	for _, kind := range []string{"gz/prog*.gz", "plain/prog*.log"} {
		w.messages += wantStretches(w.t, kind, w.text(kind, "prog"), w.programs.stretches())
	}
	for name, s := range w.senders {
		if w.peers[name] != nil {
			continue
		}
		want := s.sent
		if name == "udp" {
			want -= w.drops()
		}
		for _, kind := range []string{"gz/" + name + "*.gz", "plain/" + name + "*.log"} {
			got := w.inOrder(kind, name)
			if got != want {
				w.t.Errorf("%s: %d lines, want %d: %d sent, %d dropped by the kernel", kind, got, want, s.sent, s.sent-want)
			}
		}
		w.messages += want
	}
	for _, pattern := range []string{"state/*", "*/*.torn", "*/*.damaged*"} {
		if left, _ := filepath.Glob(filepath.Join(w.dir, pattern)); len(left) > 0 {
			w.t.Errorf("left behind: %v", left)
		}
	}
}

// inOrder checks that the files of a pattern hold lines of a sender at most
// once each and in order, and returns how many.
func (w *killWorld) inOrder(pattern, sender string) int {
	w.t.Helper()
	all := numbersOf(w.t, w.text(pattern, sender), sender)
	for i := 1; i < len(all); i++ {
		if all[i] <= all[i-1] {
			w.t.Errorf("%s: number %d after %d", pattern, all[i], all[i-1])
			break
		}
	}
	return len(all)
}

// text is what is in the files of a pattern, in the order of the first whole
// lines of the sender in them, without what stands before and between lines.
func (w *killWorld) text(pattern, sender string) []byte {
	w.t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.dir, pattern))
	if err != nil {
		w.t.Fatal(err)
	}
	type file struct {
		first int
		text  string
	}
	var files []file
	for _, path := range paths {
		var text []byte
		if strings.HasSuffix(path, ".gz") {
			text = readGzip(w.t, path)
		} else if text, err = os.ReadFile(path); err != nil {
			w.t.Fatal(err)
		}
		f := file{-1, withoutMarks.Replace(string(text))}
		for line := range strings.Lines(f.text) {
			var n int
			if _, err := fmt.Sscanf(line, sender+" %d ", &n); err == nil && line == string(numbered(nil, sender, n)) {
				f.first = n
				break
			}
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.first, b.first) })
	var all []byte
	for _, f := range files {
		all = append(all, f.text...)
	}
	return all
}

// kill kills a daemon, if it has not been already, and finds out what it had read
// of those sources whose queues go with it.
func (w *killWorld) kill(d *instance, how func()) {
	h, links := hold(d), w.programs.links()
	defer h.close()
	how()
	for _, peer := range w.peers {
		peer.cut(h)
	}
	w.programs.cut(h, links)
}

// A daemon is killed at each step between the receipt of a message and the end
// of its batch, several times.
func TestKillAtEachStep(t *testing.T) {
	logboom(t) // or skip
	binary, err := faultyBinary()
	if err != nil {
		t.Fatal(err)
	}
	w := newKillWorld(t, binary)
	for _, step := range []string{"append", "publish", "done", "grow", "seal", "intent", "write", "release"} {
		most := 40
		if step == "grow" {
			most = 8 // later batches begin at the size that the first have reached
		}
		for range 3 {
			at := fmt.Sprintf("%s:%d", step, 1+rand.N(most))
			d := w.run("LOGBOOM_KILL=" + at)
			t.Log(at)
			w.kill(d, func() {
				if code := d.wait(10 * time.Second); code != -1 {
					t.Fatalf("%s: exit code %d\n%s", at, code, d.stderr.String())
				}
			})
		}
	}
	w.finish()
	t.Logf("%d messages, each once", w.messages)
}

// A daemon that is killed at random moments under full load loses nothing that
// had left the kernel's queue, and writes nothing twice.
func TestKill(t *testing.T) {
	killAtRandom(t, 30)
}

func TestSoakKill(t *testing.T) {
	if os.Getenv("LOGBOOM_SOAK") == "" {
		t.Skip("1,000 kills: set LOGBOOM_SOAK=1")
	}
	killAtRandom(t, 1000)
}

func killAtRandom(t *testing.T, times int) {
	w := newKillWorld(t, logboom(t))
	for range times {
		d := w.run()
		// From its first instruction on, the taking up included.
		time.Sleep(rand.N(250 * time.Millisecond))
		w.kill(d, func() {
			d.signal(unix.SIGKILL)
			d.wait(5 * time.Second)
		})
	}
	w.finish()
	t.Logf("%d kills, %d messages, each once in a gzip and a plain file; %d were dropped by the kernel", times, w.messages, w.drops())
}
