package syslog

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"logboom/drain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually polls a condition that another goroutine or the kernel brings about.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// received is a message as a test keeps it.
type received struct {
	text      string // the message
	tag       string
	host      string
	peer      string
	truncated bool
	partial   bool
	at        time.Time
}

// sinkhole is a handler that keeps copies.
type sinkhole struct {
	mu  sync.Mutex // guards all
	all []received
}

func (s *sinkhole) take(ms []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ms {
		m := &ms[i]
		s.all = append(s.all, received{string(m.Message), string(m.Tag), string(m.Host), m.Peer, m.Truncated, m.Partial, m.Received})
	}
}

func (s *sinkhole) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// wait returns the messages once there are n.
func (s *sinkhole) wait(t testing.TB, n int) []received {
	t.Helper()
	eventually(t, "messages", func() bool { return s.len() >= n })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) != n {
		t.Fatalf("%d messages, want %d", len(s.all), n)
	}
	return s.all
}

func newPoller(t testing.TB) *drain.Poller {
	t.Helper()
	p, err := drain.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// run runs a listener and returns what stops it, once; the test's end does too.
func run(t testing.TB, listener interface {
	Run(<-chan struct{}) error
	Close() error
}) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- listener.Run(quit) }()
	stop = sync.OnceFunc(func() {
		close(quit)
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := listener.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

// socketPath is short enough for a socket's address.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "log.sock")
}

func TestSysctls(t *testing.T) {
	if n := RmemMax(); n < 4096 {
		t.Errorf("rmem_max %d", n)
	}
	if n := DgramQueueLength(); n < 1 {
		t.Errorf("max_dgram_qlen %d", n)
	}
	if n := sysctl("kernel/ostype"); n != 0 {
		t.Errorf("a word is the number %d", n)
	}
}

func TestAllowed(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for addr, want := range map[string]bool{"127.0.0.1": true, "128.0.0.1": false, "fd00::1": true, "::1": false} {
		if got := allowed(allow, netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if allowed([]netip.Prefix{}, netip.MustParseAddr("127.0.0.1")) || !allowed(nil, netip.MustParseAddr("::1")) {
		t.Error("an empty list allows, or none does not")
	}
}

// bind binds a unix datagram socket as a listener does.
func bind(path string) (int, *socketFile, error) {
	return bindUnix(path, unix.SOCK_DGRAM, 0o666, -1, -1)
}

// TestBindUnixStale: U06, a socket file that a killed process left.
func TestBindUnixStale(t *testing.T) {
	path := socketPath(t)
	fd, _, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = bind(path)
	if err == nil || !strings.Contains(err.Error(), "another process listens on "+path) {
		t.Errorf("a live socket: %v", err)
	}
	if _, _, err := bindUnix(path, unix.SOCK_STREAM, 0o666, -1, -1); err == nil {
		t.Error("a live socket of another type was replaced")
	}
	unix.Close(fd) // the file stays, as after a kill
	fd, file, err := bind(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	if err := file.remove(); err != nil {
		t.Error(err)
	}
	unix.Close(fd)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if err := file.remove(); err != nil {
		t.Errorf("a second remove: %v", err)
	}
}

// TestBindUnixRefuses: U06, what is no socket is named and left alone.
func TestBindUnixRefuses(t *testing.T) {
	path := socketPath(t)
	dir := filepath.Dir(path)
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(text, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{text, dir, link, dir + "/" + strings.Repeat("x", 120)} {
		if _, _, err := bind(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if b, err := os.ReadFile(text); string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error(err)
	}
}

// TestBindUnixMode: U09, mode and owner as set whatever the umask, folders too.
func TestBindUnixMode(t *testing.T) {
	path := filepath.Join(filepath.Dir(socketPath(t)), "a", "b", "log.sock")
	defer unix.Umask(unix.Umask(0o077))
	uid, gid := -1, os.Getgid()
	if os.Getuid() == 0 {
		uid, gid = 12345, 12346
	}
	for _, mode := range []os.FileMode{0o660, 0o666, 0o600} {
		fd, file, err := bindUnix(path, unix.SOCK_DGRAM, mode, uid, gid)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		if got := os.FileMode(st.Mode & 0o7777); got != mode {
			t.Errorf("mode %o, want %o", got, mode)
		}
		if int(st.Gid) != gid || uid >= 0 && int(st.Uid) != uid {
			t.Errorf("owner %d:%d, want %d:%d", st.Uid, st.Gid, uid, gid)
		}
		unix.Close(fd)
		if err := file.remove(); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
}

// TestRemoveAnothersSocket: the file that another process has made since stays.
func TestRemoveAnothersSocket(t *testing.T) {
	path := socketPath(t)
	fd, file, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, _, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := file.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestAdoptSocketRefuses(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := adoptSocket(fd, unix.SOCK_DGRAM, false); err == nil {
		t.Error("a unix socket was taken for UDP")
	}
	if _, err := adoptSocket(fd, unix.SOCK_STREAM, true); err == nil {
		t.Error("a datagram socket was taken for a stream")
	}
	if _, err := adoptSocket(1<<20, unix.SOCK_DGRAM, false); err == nil {
		t.Error("a closed descriptor was taken")
	}
	dup, err := adoptSocket(fd, unix.SOCK_DGRAM, true)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	if flags, err := unix.FcntlInt(uintptr(dup), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("children inherit the socket: %v", err)
	}
}
