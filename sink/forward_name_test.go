package sink

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

// nameServer is a DNS server that knows every name, as one IPv4 address.
type nameServer struct {
	t      testing.TB
	conn   net.PacketConn
	ip     atomic.Pointer[netip.Addr] // nil: it knows no name
	silent atomic.Bool                // cannot be reached
	asked  atomic.Int64
}

func newNameServer(t testing.TB) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{t: t, conn: conn}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

// resolver asks this server only.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if s.silent.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) knows(address string) {
	ip := netip.MustParseAddr(address)
	s.ip.Store(&ip)
}

func (s *nameServer) serve() {
	query := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(query)
		if err != nil {
			return
		}
		s.asked.Add(1)
		s.conn.WriteTo(s.answer(query[:n]), from)
	}
}

// answer answers one question (RFC 1035 section 4.1).
func (s *nameServer) answer(query []byte) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	const typeA = 1
	isA := binary.BigEndian.Uint16(query[end-4:]) == typeA
	ip := s.ip.Load()

	reply := append([]byte(nil), query[:end]...)
	binary.BigEndian.PutUint16(reply[2:], 0x8180) // a response, recursion desired and available
	clear(reply[6:12])
	switch {
	case ip == nil:
		reply[3] |= 3 // no such name
	case isA:
		reply[7] = 1
		reply = append(reply, 0xC0, 12, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, ip.AsSlice()...)
	}
	return reply
}

// FW04: a name that cannot be looked up at first heals by itself.
func TestForwardNameAppears(t *testing.T) {
	s, w, names := newServer(t), newTimber(t), newNameServer(t)
	_, port, _ := net.SplitHostPort(s.Target.Address)
	f := startForwarder(t, testForward(Target{"tcp", "logs.test.:" + port}))
	f.resolver = names.resolver()
	b := w.batch(Lines, "m1")
	for range 3 {
		if err := f.Deliver(b, nil); err == nil {
			t.Fatal("delivered to a name that nobody knows")
		}
	}
	names.knows("127.0.0.1")
	mustDeliver(t, f, b)
	mustEqual(t, s.awaits(1), []string{"m1"})
}

// A UDP name that stands for another address later is followed, and kept
// while nobody can look it up.
func TestForwardUDPNameMoves(t *testing.T) {
	a, w, names := newDatagramServer(t, "udp", "127.0.0.1:0"), newTimber(t), newNameServer(t)
	_, port, _ := net.SplitHostPort(a.Target.Address)
	b := newDatagramServer(t, "udp", "127.0.0.2:"+port)
	f := startForwarder(t, testForward(Target{"udp", "logs.test.:" + port}))
	f.resolver = names.resolver()
	f.conf.ResolveEvery = 0
	names.knows("127.0.0.1")
	mustDeliver(t, f, w.batch(Octets, "m1"))
	socket := f.conn
	mustDeliver(t, f, w.batch(Octets, "m2"))
	if f.conn != socket {
		t.Error("a new socket for the same address")
	}
	names.ip.Store(nil)
	mustDeliver(t, f, w.batch(Octets, "m3"))
	mustEqual(t, a.awaits(3), []string{"m1", "m2", "m3"})

	names.knows("127.0.0.2")
	mustDeliver(t, f, w.batch(Octets, "m4"))
	mustEqual(t, b.awaits(1), []string{"m4"})

	// Not before its time.
	f.conf.ResolveEvery = 1 << 40
	asked := names.asked.Load()
	mustDeliver(t, f, w.batch(Octets, "m5"))
	if n := names.asked.Load(); n != asked {
		t.Errorf("asked %d times again", n-asked)
	}
}
