package syslog

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// udpConfig is a listener on a free port of the loopback.
func udpConfig(t testing.TB, handler func([]Message)) DatagramConfig {
	t.Helper()
	return DatagramConfig{
		Network: "udp", Address: "127.0.0.1:0", FD: -1,
		MaxMessage: 64 << 10, ReceiveBuffer: 4 << 20, DrainInterval: -1,
		Mode: 0o666, UID: -1, GID: -1,
		Poller: newPoller(t), Handler: func(ms []Message, _ Window) { handler(ms) },
	}
}

func unixConfig(t testing.TB, path string, handler func([]Message)) DatagramConfig {
	t.Helper()
	cfg := udpConfig(t, handler)
	cfg.Network, cfg.Address = "unixgram", path
	return cfg
}

func listenDatagram(t testing.TB, cfg DatagramConfig) *Datagram {
	t.Helper()
	d, err := ListenDatagram(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDatagram(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			var got sinkhole
			cfg := udpConfig(t, got.take)
			cfg.Address = address
			d := listenDatagram(t, cfg)
			d.AskPeers()
			run(t, d)
			c := dial(t, "udp", d.Addr())
			begin := time.Now()
			for _, s := range []string{"<190>Mar 15 10:20:30 web nginx: GET /\n", "", "\n", "plain", "<13>Mar 15 10:20:30 h a: tail \r\n\x00"} {
				send(t, c, s)
			}
			want := []received{{text: "GET /", tag: "nginx", host: "web"}, {text: "plain"}, {text: "tail ", tag: "a", host: "h"}}
			for i, m := range got.wait(t, len(want)) {
				if at := m.at; at.Before(begin) || time.Since(at) < 0 {
					t.Errorf("received at %v", at)
				}
				want[i].peer = strings.Trim(address[:strings.LastIndex(address, ":")], "[]")
				if m.at = want[i].at; m != want[i] {
					t.Errorf("%+v, want %+v", m, want[i])
				}
			}
		})
	}
}

// TestAskPeers: who sent a message is not known before it is asked, and is from
// then on, whatever memory is received into.
func TestAskPeers(t *testing.T) {
	var got sinkhole
	d := listenDatagram(t, udpConfig(t, got.take))
	run(t, d)
	c := dial(t, "udp", d.Addr())
	steps := []struct {
		before func() error
		peer   string
	}{
		{func() error { return nil }, ""},
		{func() error { return d.Move(&fakeWindow{memory: mapped(t, 1<<20)}) }, ""},
		{func() error { d.AskPeers(); return nil }, "127.0.0.1"},
		{func() error { return d.Move(&fakeWindow{memory: mapped(t, 1<<20)}) }, "127.0.0.1"},
		{func() error { return d.Move(nil) }, "127.0.0.1"},
	}
	for i, step := range steps {
		if err := step.before(); err != nil {
			t.Fatal(err)
		}
		send(t, c, "<13>Mar 15 10:20:30 a: x")
		if m := got.wait(t, i+1)[i]; m.peer != step.peer {
			t.Errorf("step %d: the peer is %q, want %q", i, m.peer, step.peer)
		}
	}
}

// TestAllowKnowsPeers: where only some may send, it is always asked who did.
func TestAllowKnowsPeers(t *testing.T) {
	var got sinkhole
	cfg := udpConfig(t, got.take)
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	d := listenDatagram(t, cfg)
	run(t, d)
	send(t, dial(t, "udp", d.Addr()), "x")
	if m := got.wait(t, 1)[0]; m.peer != "127.0.0.1" {
		t.Errorf("%+v", m)
	}
}

func TestDatagramRaw(t *testing.T) {
	var got sinkhole
	cfg := udpConfig(t, got.take)
	cfg.Raw = true
	d := listenDatagram(t, cfg)
	run(t, d)
	const raw = "<190>Mar 15 10:20:30 web nginx: GET /\r\n\x00"
	send(t, dial(t, "udp", d.Addr()), raw)
	if m := got.wait(t, 1)[0]; m.text != raw || m.tag != "" {
		t.Errorf("%+v", m)
	}
}

// TestDatagramLarge: U01, every length up to the largest that UDP has.
func TestDatagramLarge(t *testing.T) {
	var got sinkhole
	d := listenDatagram(t, udpConfig(t, got.take))
	run(t, d)
	c := dial(t, "udp", d.Addr())
	lengths := []int{1, 100, denseSize - 33, denseSize - 32, denseSize - 31, 4096, 8968, 65507 - 32}
	for _, n := range lengths {
		send(t, c, "<190>Mar 15 10:20:30 web nginx: "+strings.Repeat("A", n/2)+strings.Repeat("B", n-n/2))
	}
	for i, m := range got.wait(t, len(lengths)) {
		n := lengths[i]
		if m.text != strings.Repeat("A", n/2)+strings.Repeat("B", n-n/2) || m.truncated {
			t.Errorf("%d bytes, want %d", len(m.text), n)
		}
	}
	if n := d.Stats().Truncated; n != 0 {
		t.Errorf("%d truncated", n)
	}
}

// TestDatagramTruncated: over the limit, and exactly the limit with framing.
func TestDatagramTruncated(t *testing.T) {
	tests := []struct {
		in, want  string
		truncated bool
	}{
		{"0123456789", "0123456789", false},
		{"0123456789\r\n\x00", "0123456789", false},
		{"0123456789a", "0123456789", true},
		{"0123456789abcdefghijklmno", "0123456789", true},
		{"01234567\xe4\xb8\xad", "01234567", true},
		{"0123456789\xe4\xb8\xad\xe4\xb8\xad", "0123456789", true},
		{"0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", "0\x80\x80\x80\x80\x80\x80\x80\x80\x80", true},
	}
	var got sinkhole
	cfg := udpConfig(t, got.take)
	cfg.MaxMessage = 10
	d := listenDatagram(t, cfg)
	run(t, d)
	c := dial(t, "udp", d.Addr())
	for _, test := range tests {
		send(t, c, test.in)
	}
	want := uint64(0)
	for i, m := range got.wait(t, len(tests)) {
		if m.text != tests[i].want || m.truncated != tests[i].truncated {
			t.Errorf("%q: %q truncated %v", tests[i].in, m.text, m.truncated)
		}
		if tests[i].truncated {
			want++
		}
	}
	if n := d.Stats().Truncated; n != want {
		t.Errorf("%d truncated, want %d", n, want)
	}
}

// TestDatagramBurst sends more than one recvmmsg takes, from several senders,
// and wants each sender's messages whole and in order, with far fewer calls.
func TestDatagramBurst(t *testing.T) {
	var got sinkhole
	d := listenDatagram(t, udpConfig(t, got.take))
	const senders = 4
	each := min(1000, d.room()/senders) // without privileges the buffer may be small
	for s := range senders {
		c := dial(t, "udp", d.Addr())
		for i := range each {
			send(t, c, fmt.Sprintf("<13>Mar 15 10:20:30 h s%d: %d", s, i))
		}
	}
	run(t, d)
	next := map[string]int{}
	for _, m := range got.wait(t, senders*each) {
		if m.text != strconv.Itoa(next[m.tag]) {
			t.Fatalf("%s: message %s, want %d", m.tag, m.text, next[m.tag])
		}
		next[m.tag]++
	}
	if stats := d.Stats(); stats.Calls > uint64(senders*each/slotCount+10) || stats.KernelDropped != 0 {
		t.Errorf("%+v for %d messages", stats, senders*each)
	}
}

// TestDatagramDropsExact: what was sent is what was received and what the
// kernel says it dropped, however the socket changes hands.
func TestDatagramDropsExact(t *testing.T) {
	const sent = 3000
	var got sinkhole
	cfg := udpConfig(t, got.take)
	cfg.ReceiveBuffer = 64 << 10
	d := listenDatagram(t, cfg)
	c := dial(t, "udp", d.Addr())
	for i := range sent {
		send(t, c, fmt.Sprintf("message %d", i))
	}
	dropped := d.Stats().KernelDropped // no traffic is needed for it
	if dropped == 0 || dropped >= sent {
		t.Fatalf("%d of %d dropped", dropped, sent)
	}
	cookie, drops := d.Cookie(), d.Drops()

	cfg.FD = d.FD()
	heir := listenDatagram(t, cfg)
	if heir.Cookie() != cookie || cookie == 0 {
		t.Errorf("cookies %d and %d of one socket", cookie, heir.Cookie())
	}
	if n := heir.Stats().KernelDropped; n != 0 {
		t.Errorf("the heir counts %d drops that are not its own", n)
	}
	heir.SetBaseline(drops - uint32(dropped))
	if n := heir.Stats().KernelDropped; n != dropped {
		t.Errorf("%d drops since the baseline, want %d", n, dropped)
	}
	run(t, d)()
	if got := got.len() + int(dropped); got != sent {
		t.Errorf("%d received and dropped, %d sent", got, sent)
	}
	if n := d.Stats().KernelDropped; n != dropped {
		t.Errorf("%d drops after Close, want %d", n, dropped)
	}
	if n := d.Cookie(); n != 0 {
		t.Errorf("cookie %d after Close", n)
	}
}

// TestDatagramDropsWrap: the kernel's counter has 32 bits.
func TestDatagramDropsWrap(t *testing.T) {
	d := listenDatagram(t, udpConfig(t, func([]Message) {}))
	d.SetBaseline(1<<32 - 5)
	if n := d.Stats().KernelDropped; n != 5 {
		t.Errorf("%d drops from 2^32-5 to 0, want 5", n)
	}
}

// TestDatagramStopDrains: what is queued when stop comes is handed out.
func TestDatagramStopDrains(t *testing.T) {
	var got sinkhole
	d := listenDatagram(t, udpConfig(t, got.take))
	sent := min(2500, d.room()) // without privileges the buffer may be small
	c := dial(t, "udp", d.Addr())
	for range sent {
		send(t, c, "x")
	}
	stop := make(chan struct{})
	close(stop)
	if err := d.Run(stop); err != nil {
		t.Fatal(err)
	}
	if n := got.len(); n != sent {
		t.Errorf("%d of %d", n, sent)
	}
}

// TestDatagramStopEnds: a sender that never rests does not keep it running.
func TestDatagramStopEnds(t *testing.T) {
	var got sinkhole
	cfg := udpConfig(t, got.take)
	cfg.ReceiveBuffer = 64 << 10
	d := listenDatagram(t, cfg)
	c := dial(t, "udp", d.Addr())
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for !stopped(quit) {
			c.Write([]byte("x"))
		}
	}()
	stop := run(t, d)
	eventually(t, "messages", func() bool { return got.len() > 1000 })
	stop()
	close(quit)
	<-ended
}

func TestDatagramAllow(t *testing.T) {
	var got sinkhole
	cfg := udpConfig(t, got.take)
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	d := listenDatagram(t, cfg)
	run(t, d)
	send(t, dial(t, "udp", d.Addr()), "stranger")
	eventually(t, "the stranger is refused", func() bool { return d.Stats().Refused == 1 })
	friend, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(d.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	defer friend.Close()
	send(t, friend, "friend")
	if m := got.wait(t, 1)[0]; m.text != "friend" || m.peer != "127.0.0.2" {
		t.Errorf("%+v", m)
	}
}

func TestDatagramUnix(t *testing.T) {
	path := socketPath(t)
	var got sinkhole
	d := listenDatagram(t, unixConfig(t, path, got.take))
	if d.Addr() != path {
		t.Errorf("address %q", d.Addr())
	}
	stop := run(t, d)
	c := dial(t, "unixgram", path)
	send(t, c, "<190>Mar 15 10:20:30 web nginx: one") // a host as nginx writes it
	send(t, c, "<13>Mar 15 10:20:30 app[7]: two")     // none, as glibc does
	send(t, c, "<13>Mar 15 10:20:30 "+strings.Repeat("long ", 10_000))
	all := got.wait(t, 3)
	if m := all[0]; m.host != "web" || m.tag != "nginx" || m.text != "one" || m.peer != "" {
		t.Errorf("%+v", m)
	}
	if m := all[1]; m.host != "" || m.tag != "app" || m.text != "two" {
		t.Errorf("%+v", m)
	}
	if m := all[2]; m.host != "" || len(m.text) != 50_000 {
		t.Errorf("host %q, %d bytes", m.host, len(m.text))
	}
	stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket's file is still there: %v", err)
	}
}

// TestDatagramUnixBlocked: a sender that waits for room in a short queue is
// woken, and every message arrives.
func TestDatagramUnixBlocked(t *testing.T) {
	const sent = 2000
	for _, interval := range []time.Duration{-1, 0, 2 * time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			path := socketPath(t)
			var got sinkhole
			cfg := unixConfig(t, path, got.take)
			cfg.DrainInterval = interval
			d := listenDatagram(t, cfg)
			if short := DgramQueueLength() < shortQueue; interval < 0 && short != (d.DrainInterval() == 0) {
				t.Errorf("drains every %v with a queue of %d", d.DrainInterval(), DgramQueueLength())
			}
			run(t, d)
			c := dial(t, "unixgram", path)
			for i := range sent {
				send(t, c, strconv.Itoa(i))
			}
			for i, m := range got.wait(t, sent) {
				if m.text != strconv.Itoa(i) {
					t.Fatalf("message %d is %q", i, m.text)
				}
			}
		})
	}
}

// TestDatagramAdopt: a socket goes over to a new listener; what is queued, and
// what is sent meanwhile, arrives once.
func TestDatagramAdopt(t *testing.T) {
	path := socketPath(t)
	var got sinkhole
	old := listenDatagram(t, unixConfig(t, path, got.take))
	stopOld := run(t, old)
	c := dial(t, "unixgram", path)
	send(t, c, "1")
	cfg := unixConfig(t, path, got.take)
	cfg.FD = old.FD()
	heir := listenDatagram(t, cfg)
	send(t, c, "2")
	if !heir.TakeOver(old) || heir.TakeOver(listenDatagram(t, unixConfig(t, socketPath(t), got.take))) {
		t.Error("taking over goes by the socket")
	}
	stopOld()
	send(t, c, "3")
	stop := run(t, heir)
	send(t, c, "4")
	for i, m := range got.wait(t, 4) {
		if m.text != strconv.Itoa(i+1) {
			t.Errorf("message %d is %q", i+1, m.text)
		}
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the file of a socket that was taken over is gone: %v", err)
	}
	stop()
	heir.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestDatagramReusePort(t *testing.T) {
	cfg := udpConfig(t, func([]Message) {})
	cfg.ReusePort = true
	first := listenDatagram(t, cfg)
	cfg.Address = first.Addr()
	if second := listenDatagram(t, cfg); second.Addr() != first.Addr() {
		t.Errorf("bound to %s and %s", first.Addr(), second.Addr())
	}
}

func TestDatagramReceiveBuffer(t *testing.T) {
	cfg := udpConfig(t, func([]Message) {})
	cfg.ReceiveBuffer = min(RmemMax(), 1<<20)
	if d := listenDatagram(t, cfg); d.ReceiveBuffer() != 2*cfg.ReceiveBuffer || d.DrainInterval() != udpInterval {
		t.Errorf("granted %d of %d, drains every %v", d.ReceiveBuffer(), cfg.ReceiveBuffer, d.DrainInterval())
	}
	cfg.ReceiveBuffer = 4096
	if d := listenDatagram(t, cfg); d.DrainInterval() != 0 {
		t.Errorf("drains a queue of %d bytes every %v", d.ReceiveBuffer(), d.DrainInterval())
	}
}

func TestListenDatagramErrors(t *testing.T) {
	busy := listenDatagram(t, udpConfig(t, func([]Message) {}))
	tests := []struct {
		name, want string
		change     func(*DatagramConfig)
	}{
		{"in use", "listen udp://" + busy.Addr() + ": ", func(c *DatagramConfig) { c.Address = busy.Addr() }},
		{"no port", "udp://127.0.0.1", func(c *DatagramConfig) { c.Address = "127.0.0.1" }},
		{"network", "tcp://", func(c *DatagramConfig) { c.Network = "tcp" }},
		{"limit", "max message of 0", func(c *DatagramConfig) { c.MaxMessage = 0 }},
		{"handler", "a handler", func(c *DatagramConfig) { c.Handler = nil }},
		{"descriptor", "descriptor 0", func(c *DatagramConfig) { c.FD = 0 }},
		{"folder", "/proc/x", func(c *DatagramConfig) { c.Network, c.Address = "unixgram", "/proc/x/y.sock" }},
	}
	for _, test := range tests {
		cfg := udpConfig(t, func([]Message) {})
		test.change(&cfg)
		if _, err := ListenDatagram(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// TestDatagramEndsWithItsSocket: an error that cannot pass ends Run.
func TestDatagramEndsWithItsSocket(t *testing.T) {
	for err, want := range map[error]bool{unix.EBADF: true, unix.EINVAL: true, unix.EINTR: false, unix.ECONNREFUSED: false, unix.ENOMEM: false} {
		if _, got := transient(err); (got != nil) != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestDatagramAllocates: a burst of two senders, nothing allocated.
func TestDatagramAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := listenDatagram(t, udpConfig(t, func([]Message) {}))
	a, b := dial(t, "udp", d.Addr()).(*net.UDPConn), dial(t, "udp", d.Addr()).(*net.UDPConn)
	line := []byte("<190>Mar 15 10:20:30 web nginx: 127.0.0.1 - - [15/Mar/2026:10:20:30 +0000] GET / 200")
	large := make([]byte, 3*denseSize)
	n := testing.AllocsPerRun(100, func() {
		for range 20 {
			a.Write(line)
			b.Write(line)
		}
		a.Write(large)
		if units, _, err := d.drain(); units != 41 || err != nil {
			t.Fatal(units, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
}

func TestSlotsGiveBack(t *testing.T) {
	d := listenDatagram(t, udpConfig(t, func([]Message) {}))
	send(t, dial(t, "udp", d.Addr()), strings.Repeat("x", 60_000))
	if n, _, err := d.drain(); n != 1 || err != nil || !d.slots.touched {
		t.Fatalf("%d, %v, touched %v", n, err, d.slots.touched)
	}
	resident := make([]byte, len(d.slots.large)/os.Getpagesize())
	count := func() (n int) {
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&d.slots.large[0])), uintptr(len(d.slots.large)), uintptr(unsafe.Pointer(&resident[0]))); errno != 0 {
			t.Fatal(errno)
		}
		for _, b := range resident {
			n += int(b & 1)
		}
		return n
	}
	if n := count(); n < 60_000/os.Getpagesize() {
		t.Errorf("%d pages before", n)
	}
	if n, _, err := d.drain(); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d pages are still there", n)
	}
}

func TestPeerNames(t *testing.T) {
	var p peerNames
	for i := range 3 * maxPeerNames {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if name := p.name(addr); name != addr.String() || len(p.names) > maxPeerNames {
			t.Fatalf("%v is %q, %d names", addr, name, len(p.names))
		}
	}
}
