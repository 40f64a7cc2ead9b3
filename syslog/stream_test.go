package syslog

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// logbook is a log that a test reads.
type logbook struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func tcpConfig(handler func([]Message)) StreamConfig {
	mem := &memory{left: 1 << 30}
	return StreamConfig{
		Network: "tcp", Address: "127.0.0.1:0", FD: -1,
		MaxMessage: 64 << 10, MaxConnections: 100, IdleTimeout: time.Minute,
		Mode: 0o666, UID: -1, GID: -1,
		Reserve: mem.reserve, Release: mem.release, Handler: func(ms []Message, _ StreamWindow) { handler(ms) },
		Log: zerolog.Nop(),
	}
}

func listenStream(t testing.TB, cfg StreamConfig) *Stream {
	t.Helper()
	s, err := ListenStream(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// closed waits until the peer has closed the connection.
func closed(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("the connection is not closed: %d, %v", n, err)
	}
}

func TestStream(t *testing.T) {
	path := socketPath(t)
	for _, at := range []struct{ network, address, peer string }{
		{"tcp", "127.0.0.1:0", "127.0.0.1"}, {"tcp", "[::1]:0", "::1"}, {"unix", path, ""},
	} {
		t.Run(at.network+at.address, func(t *testing.T) {
			var got sinkhole
			cfg := tcpConfig(got.take)
			cfg.Network, cfg.Address = at.network, at.address
			s := listenStream(t, cfg)
			stop := run(t, s)
			c := dial(t, at.network, s.Addr())
			send(t, c, "<190>Mar 15 10:20:30 web nginx: one\n<13>Mar 15 10:20:30 h1 not a tag\n<13>Mar 15 ")
			got.wait(t, 2)
			send(t, c, "10:20:30 app[7]: three")
			c.Close()
			host, text := "h1", "not a tag" // on a unix socket a host needs a tag
			if at.network == "unix" {
				host, text = "", "h1 not a tag"
			}
			want := []received{
				{text: "one", tag: "nginx", host: "web", peer: at.peer},
				{text: text, host: host, peer: at.peer},
				{text: "three", tag: "app", peer: at.peer},
			}
			for i, m := range got.wait(t, len(want)) {
				if m.at = want[i].at; m != want[i] {
					t.Errorf("%+v, want %+v", m, want[i])
				}
			}
			eventually(t, "the connection is over", func() bool { return s.Stats().Connections == 0 })
			stop()
			if n := s.Stats(); n != (StreamStats{Accepted: 1}) {
				t.Errorf("%+v", n)
			}
		})
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket's file is still there: %v", err)
	}
}

// TestStreamRefuses: F07, F09, F15, SE03: one log line that names the peer and
// quotes what it sent, and the connection is closed; others are not touched.
func TestStreamRefuses(t *testing.T) {
	tests := []struct {
		name    string
		framing Framing
		input   string
		quoted  string
		whole   int // messages before
	}{
		{"TLS", FramingAuto, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS hello", 0},
		{"too many digits", FramingOctet, "99999999999999999999 " + one, "99999999999", 0},
		{"digits without end", FramingOctet, strings.Repeat("1", 100_000), "11111111111", 0},
		{"no number", FramingAuto, "48 " + one + "43 " + two, "3>", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got sinkhole
			var log logbook
			cfg := tcpConfig(got.take)
			cfg.Framing, cfg.Log = test.framing, zerolog.New(&log)
			s := listenStream(t, cfg)
			run(t, s)
			other, c := dial(t, "tcp", s.Addr()), dial(t, "tcp", s.Addr())
			c.Write([]byte(test.input))
			closed(t, c)
			send(t, other, map[Framing]string{FramingAuto: "x\n", FramingOctet: "1 x"}[test.framing])
			eventually(t, "the other is served", func() bool { return got.len() == test.whole+1 })
			if n := s.Stats().FramingErrors; n != 1 {
				t.Errorf("%d framing errors", n)
			}
			if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, test.quoted) || !strings.Contains(line, `"peer":"127.0.0.1"`) {
				t.Errorf("log: %s", line)
			}
		})
	}
}

func TestStreamTruncated(t *testing.T) {
	var got sinkhole
	cfg := tcpConfig(got.take)
	cfg.MaxMessage = 10
	s := listenStream(t, cfg)
	run(t, s)
	send(t, dial(t, "tcp", s.Addr()), strings.Repeat("a", 100_000)+"\nb\n")
	if all := got.wait(t, 2); all[0].text != strings.Repeat("a", 10) || !all[0].truncated || all[1].text != "b" || all[1].truncated {
		t.Errorf("%+v", all)
	}
	if n := s.Stats().Truncated; n != 1 {
		t.Errorf("%d truncated", n)
	}
}

// TestStreamMaxConnections: U12: an idle connection keeps nobody waiting, and
// those over the limit are closed, counted, and logged once.
func TestStreamMaxConnections(t *testing.T) {
	const limit, over = 5, 10
	var got sinkhole
	var log logbook
	cfg := tcpConfig(got.take)
	cfg.MaxConnections, cfg.Log = limit, zerolog.New(&log)
	s := listenStream(t, cfg)
	run(t, s)
	var conns []net.Conn
	for i := range limit {
		conns = append(conns, dial(t, "tcp", s.Addr()))
		eventually(t, "it is served", func() bool { return s.Stats().Connections == i+1 })
	}
	for range over {
		closed(t, dial(t, "tcp", s.Addr()))
	}
	send(t, conns[limit-1], "x\n")
	got.wait(t, 1)
	if n := s.Stats(); n.Refused != over || n.Accepted != limit || n.Connections != limit {
		t.Errorf("%+v", n)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d log lines: %s", n, log.String())
	}
	conns[0].Close()
	eventually(t, "there is room again", func() bool { return s.Stats().Connections == limit-1 })
	send(t, dial(t, "tcp", s.Addr()), "y\n")
	got.wait(t, 2)
}

func TestStreamAllow(t *testing.T) {
	cfg := tcpConfig(func([]Message) { t.Error("a stranger was served") })
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	s := listenStream(t, cfg)
	run(t, s)
	closed(t, dial(t, "tcp", s.Addr()))
	if n := s.Stats(); n.Refused != 1 || n.Accepted != 0 {
		t.Errorf("%+v", n)
	}
}

// TestStreamShortage: U12: without descriptors the accept loop waits, says so
// once, and goes on by itself.
func TestStreamShortage(t *testing.T) {
	var got sinkhole
	var log logbook
	cfg := tcpConfig(got.take)
	cfg.Log = zerolog.New(&log)
	s := listenStream(t, cfg)
	address := netip.MustParseAddrPort(s.Addr())

	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	run(t, s)
	lowest, err := unix.FcntlInt(uintptr(client), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(lowest)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	restore := sync.OnceFunc(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
	defer restore()

	if err := unix.Connect(client, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	unix.Write(client, []byte("x\n"))
	eventually(t, "the shortage is logged", func() bool { return strings.Contains(log.String(), "too many open files") })
	begin := time.Now()
	eventually(t, "some tries later", func() bool { return time.Since(begin) > 10*minAcceptPause })
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d log lines: %s", n, log.String())
	}
	restore()
	got.wait(t, 1)
	if !strings.Contains(log.String(), "accepted again") {
		t.Errorf("the recovery is not logged: %s", log.String())
	}
}

// TestStreamKeepAlive: U13: probes after 60 s, 3 of them 10 s apart.
func TestStreamKeepAlive(t *testing.T) {
	s := listenStream(t, tcpConfig(func([]Message) {}))
	run(t, s)
	dial(t, "tcp", s.Addr())
	eventually(t, "it is served", func() bool { return s.Stats().Connections == 1 })
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		raw, err := c.nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			for _, o := range []struct{ level, name, want int }{
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
				{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			} {
				if got, err := unix.GetsockoptInt(int(fd), o.level, o.name); got != o.want {
					t.Errorf("option %d is %d (%v), want %d", o.name, got, err, o.want)
				}
			}
		})
	}
}

// TestStreamStopDrains: what the kernel holds of each connection is handed
// out, the last half frame too; then the connections are closed.
func TestStreamStopDrains(t *testing.T) {
	const conns, each = 5, 2000
	var got sinkhole
	gate := make(chan struct{})
	cfg := tcpConfig(func(ms []Message) { <-gate; got.take(ms) })
	s := listenStream(t, cfg)
	stop := run(t, s)
	text := strings.Repeat("0123456789\n", each) + "half"
	var all []net.Conn
	for range conns {
		c := dial(t, "tcp", s.Addr())
		send(t, c, text) // some of it is in the handler, the rest in the kernel
		all = append(all, c)
	}
	idle := dial(t, "tcp", s.Addr())
	eventually(t, "all has arrived", func() bool { return !slices.ContainsFunc(all, unsent) })
	eventually(t, "all are served", func() bool { return s.Stats().Connections == conns+1 })
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	eventually(t, "no more are accepted", func() bool { return s.FD() == -1 || finishing(s) })
	close(gate)
	<-ended
	half := 0
	for _, m := range got.wait(t, conns*(each+1)) {
		if m.partial && m.text == "half" {
			half++
		} else if m.partial || m.text != "0123456789" {
			t.Fatalf("%+v", m)
		}
	}
	if half != conns {
		t.Errorf("%d half frames of %d", half, conns)
	}
	for _, c := range append(all, idle) {
		closed(t, c)
	}
}

// unsent says whether the receiver's kernel lacks bytes that were sent.
func unsent(c net.Conn) bool {
	n := 1
	control(c, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.TIOCOUTQ)
		return err
	})
	return n > 0
}

// finishing says whether the connections know of the stop.
func finishing(s *Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !stopped(c.quit) {
			return false
		}
	}
	return true
}

// TestStreamStopEnds: a peer that never rests does not keep it running.
func TestStreamStopEnds(t *testing.T) {
	var got sinkhole
	s := listenStream(t, tcpConfig(func(ms []Message) { got.take(ms[:1]) }))
	stop := run(t, s)
	c := dial(t, "tcp", s.Addr())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for block := bytes.Repeat([]byte("x\n"), 1000); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}()
	eventually(t, "messages", func() bool { return got.len() > 100 })
	begin := time.Now()
	stop()
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("stopping took %v", d)
	}
	<-ended
}

// TestStreamManyMessages: more in a read than a handler is given at once.
func TestStreamManyMessages(t *testing.T) {
	var got sinkhole
	largest := 0
	cfg := tcpConfig(func(ms []Message) { largest = max(largest, len(ms)); got.take(ms) })
	s := listenStream(t, cfg)
	stop := run(t, s)
	var b strings.Builder
	const n = 20_000
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	send(t, dial(t, "tcp", s.Addr()), b.String())
	for i, m := range got.wait(t, n) {
		if m.text != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, m.text)
		}
	}
	stop()
	if largest > batchSize {
		t.Errorf("%d messages at once", largest)
	}
}

// TestStreamAdopt: the socket goes over to a new listener, whose connections
// are its own; those of the old one are served until their peers close them.
func TestStreamAdopt(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			var got sinkhole
			cfg := tcpConfig(got.take)
			if cfg.Network = network; network == "unix" {
				cfg.Address = socketPath(t)
			}
			old := listenStream(t, cfg)
			stopOld := run(t, old)
			before := dial(t, network, old.Addr())
			send(t, before, "w\n")
			got.wait(t, 1)
			cfg.FD = old.FD()
			heir := listenStream(t, cfg)
			if heir.Addr() != old.Addr() {
				t.Errorf("address %s, was %s", heir.Addr(), old.Addr())
			}
			heir.TakeOver(old)
			old.Retire()
			send(t, dial(t, network, heir.Addr()), "x\n") // either of them may accept it
			run(t, heir)
			got.wait(t, 2)
			send(t, before, "y\n")
			got.wait(t, 3)
			before.Close()
			stopOld()
			if old.FD() != -1 {
				t.Error("the old one is still open")
			}
			send(t, dial(t, network, heir.Addr()), "z\n")
			got.wait(t, 4)
		})
	}
}

func TestListenStreamErrors(t *testing.T) {
	busy := listenStream(t, tcpConfig(func([]Message) {}))
	tests := []struct {
		name, want string
		change     func(*StreamConfig)
	}{
		{"in use", "listen tcp://" + busy.Addr() + ": ", func(c *StreamConfig) { c.Address = busy.Addr() }},
		{"network", "udp://", func(c *StreamConfig) { c.Network = "udp" }},
		{"limit", "max message of 0", func(c *StreamConfig) { c.MaxMessage = 0 }},
		{"connections", "0 connections", func(c *StreamConfig) { c.MaxConnections = 0 }},
		{"handler", "a handler", func(c *StreamConfig) { c.Handler = nil }},
		{"descriptor", "descriptor 0", func(c *StreamConfig) { c.FD = 0 }},
		{"path", "unix://" + os.TempDir() + ": ", func(c *StreamConfig) { c.Network, c.Address = "unix", os.TempDir() }},
	}
	for _, test := range tests {
		cfg := tcpConfig(func([]Message) {})
		test.change(&cfg)
		if _, err := ListenStream(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}
