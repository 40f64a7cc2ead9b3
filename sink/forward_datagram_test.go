package sink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// datagramServer keeps what it gets, one message a datagram.
type datagramServer struct {
	t      testing.TB
	Target Target
	conn   net.PacketConn
	done   chan struct{} // closed: nobody reads

	mu  sync.Mutex // guards the rest
	got []string
}

// newDatagramServer has room for 3,000 short messages in its queue, so that
// no test depends on how fast it reads.
func newDatagramServer(t testing.TB, network, address string) *datagramServer {
	t.Helper()
	s := bindDatagramServer(t, network, address)
	s.run()
	return s
}

// bindDatagramServer makes one that does not read until run.
func bindDatagramServer(t testing.TB, network, address string) *datagramServer {
	t.Helper()
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s := &datagramServer{t: t, conn: conn, Target: Target{network, conn.LocalAddr().String()}, done: make(chan struct{})}
	close(s.done)
	t.Cleanup(s.kill)
	if udp, ok := conn.(*net.UDPConn); ok {
		udp.SetReadBuffer(4 << 20)
	}
	return s
}

func (s *datagramServer) run() {
	done := make(chan struct{})
	s.done = done
	go func() {
		defer close(done)
		buf := make([]byte, 1<<17)
		for {
			n, _, err := s.conn.ReadFrom(buf)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.got = append(s.got, string(buf[:n]))
			s.mu.Unlock()
		}
	}()
}

func (s *datagramServer) kill() {
	s.conn.Close()
	if s.Target.Network == "unixgram" {
		os.Remove(s.Target.Address)
	}
	<-s.done
}

func (s *datagramServer) messages() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *datagramServer) awaits(n int) []string {
	s.t.Helper()
	within(s.t, fmt.Sprintf("%d datagrams arrive", n), func() bool { return len(s.messages()) >= n })
	return s.messages()
}

// receiveRoom is what a UDP socket here can be given, in bytes of true size.
func receiveRoom(t testing.TB, s *datagramServer) (size int) {
	t.Helper()
	raw, err := s.conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func TestForwardUDP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		for name, framing := range map[string]Framing{"octets": Octets, "lines": Lines} {
			t.Run(address+" "+name, func(t *testing.T) {
				probe, err := net.ListenPacket("udp", address)
				if err != nil {
					t.Skip("no such address here: ", err)
				}
				probe.Close()
				s, w := newDatagramServer(t, "udp", address), newTimber(t)
				if room := receiveRoom(t, s); room < 3000*1280 {
					t.Skipf("a receive buffer here has %d bytes, net.core.rmem_max is too small for 3,000 datagrams", room)
				}
				f := startForwarder(t, testForward(s.Target))
				want := numbered("udp", 3000, 60)
				if framing == Octets {
					want[7], want[8] = "two\nlines", ""
				}
				mustDeliver(t, f, w.batch(framing, want...))
				mustEqual(t, s.awaits(3000), want)
				if n := f.counters.writes.Load(); n != 3 {
					t.Errorf("%d calls for 3,000 datagrams, want 3", n)
				}
				for _, v := range f.conn.(*datagrams).vectors {
					if v.Base != nil {
						t.Fatal("a vector still points into the batch")
					}
				}
				if err := f.Close(nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestForwardTooLarge(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unixgram" {
				address = filepath.Join(t.TempDir(), "log")
			}
			s, w := newDatagramServer(t, network, address), newTimber(t)
			f := startForwarder(t, testForward(s.Target))
			large := strings.Repeat("x", 1<<20)
			edge := strings.Repeat("x", 65530) // of UDP: passes the first check of the kernel only
			messages := []string{"m0", large, "m1", large, "m2"}
			if network == "udp" {
				messages = append(messages, edge, "m3")
			}
			err := f.Deliver(w.batch(Octets, messages...), nil)
			var refused *Refused
			if !errors.As(err, &refused) || refused.Reason != TooLarge {
				t.Fatalf("error %v", err)
			}
			got := s.awaits(len(messages) - refused.Messages)
			want := slices.DeleteFunc(messages, func(m string) bool { return len(m) > 100 })
			mustEqual(t, got, want)
		})
	}
}

// On one machine a refusal comes back at once, so nothing is lost while the
// receiver is away, and each message arrives once.
func TestForwardUDPRefused(t *testing.T) {
	s, w := newDatagramServer(t, "udp", "127.0.0.1:0"), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	want := numbered("udp", 200, 60)
	mustDeliver(t, f, w.batch(Octets, want[:100]...))
	mustEqual(t, s.awaits(100), want[:100])
	s.kill()
	tries, b := 0, w.batch(Octets, want[100:]...)
	for range 3 {
		if err := f.Deliver(b, nil); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("error %v", err)
		}
		tries++
	}
	again := newDatagramServer(t, "udp", s.Target.Address)
	mustDeliver(t, f, b)
	mustEqual(t, again.awaits(100), want[100:])
	if n := int(f.counters.resent.Load()); n != tries {
		t.Errorf("%d counted as resent, %d were refused", n, tries)
	}
	// A single message, which no later one of the batch can tell about.
	again.kill()
	if err := f.Deliver(w.batch(Octets, "last"), nil); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
}

// A refused UDP target is passed over, and comes back into its own.
func TestForwardUDPFailover(t *testing.T) {
	a, b, w := newDatagramServer(t, "udp", "127.0.0.1:0"), newDatagramServer(t, "udp", "127.0.0.1:0"), newTimber(t)
	f := startForwarder(t, testForward(a.Target, b.Target))
	a.kill()
	m := w.batch(Octets, "m1", "m2")
	deliverAtLast(t, f, m)
	mustEqual(t, b.awaits(2), []string{"m1", "m2"})
	a = newDatagramServer(t, "udp", a.Target.Address)
	f.conf.ResolveEvery = 0
	mustDeliver(t, f, w.batch(Octets, "m3"))
	mustEqual(t, a.awaits(1), []string{"m3"})
}

// A full queue: what it took is not sent again when there is room.
func TestForwardUnixgramFull(t *testing.T) {
	s, w := bindDatagramServer(t, "unixgram", filepath.Join(t.TempDir(), "log")), newTimber(t)
	conf := testForward(s.Target)
	conf.WriteTimeout = 50 * time.Millisecond
	f := startForwarder(t, conf)
	want := numbered("unix", 2500, 60)
	b := w.batch(Octets, want...)
	for range 2 {
		start := time.Now()
		err := f.Deliver(b, nil)
		if err == nil || !strings.Contains(err.Error(), "queue is full") {
			t.Fatalf("nobody reads: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	}
	s.run()
	deliverAtLast(t, f, b)
	mustEqual(t, s.awaits(len(want)), want)
	if n := f.counters.resent.Load(); n != 0 {
		t.Errorf("%d counted as resent", n)
	}
}

func TestForwardUnixgramGiveUp(t *testing.T) {
	s, w := bindDatagramServer(t, "unixgram", filepath.Join(t.TempDir(), "log")), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	giveUp := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() { close(giveUp) })
	start := time.Now()
	err := f.Deliver(w.batch(Octets, numbered("unix", 2500, 60)...), giveUp)
	if took := time.Since(start); !errors.Is(err, errGivenUp) || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// The path leads to another socket after the receiver's restart.
func TestForwardUnixgramRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, w := newDatagramServer(t, "unixgram", path), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	mustDeliver(t, f, w.batch(Octets, "m1"))
	mustEqual(t, s.awaits(1), []string{"m1"})
	s.kill()
	b := w.batch(Octets, "m2", "m3")
	if err := f.Deliver(b, nil); err == nil {
		t.Fatal("delivered to nobody")
	}
	again := newDatagramServer(t, "unixgram", path)
	deliverAtLast(t, f, b)
	mustEqual(t, again.awaits(2), []string{"m2", "m3"})
}

// A batch that a stream took in part, then a datagram target: what had gone
// out goes out again, and is counted.
func TestForwardStreamThenDatagrams(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	u := newDatagramServer(t, "unixgram", filepath.Join(t.TempDir(), "log"))
	f := startForwarder(t, testForward(s.Target, u.Target))
	mustDeliver(t, f, w.batch(Lines, "m1", "m2"))
	s.awaits(2)
	s.kill(true)
	mustDeliver(t, f, w.batch(Lines, "m3"))
	mustEqual(t, u.awaits(3), []string{"m1", "m2", "m3"})
	if n := f.counters.resent.Load(); n != 2 {
		t.Errorf("%d counted as resent, want 2", n)
	}
}

func TestForwardDatagramsAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, w := bindDatagramServer(t, "udp", "127.0.0.1:0"), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	b := w.batch(Octets, numbered("m", 2000, 60)...)
	mustDeliver(t, f, b)
	if n := testing.AllocsPerRun(10, func() {
		f.sequence = 0
		if err := f.Deliver(b, nil); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a batch", n)
	}
}
