package syslog

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"logboom/drain"
)

// fakeWindow is memory of the test's; what it holds is done after End.
type fakeWindow struct {
	memory []byte
	open   bool
	ends   int
	closed bool
}

func (w *fakeWindow) Memory() []byte { return w.memory }
func (w *fakeWindow) Begin()         { w.open = true }
func (w *fakeWindow) End()           { w.open, w.ends = false, w.ends+1 }

func (w *fakeWindow) Close() error {
	w.closed = true
	return nil
}

func mapped(t testing.TB, n int) []byte {
	t.Helper()
	b, err := mapMemory(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// inWindow sends datagrams to a listener that receives into a window, and calls
// look with what the handler sees.
func inWindow(t *testing.T, size int, datagrams []string, look func(w *fakeWindow, ms []Message)) *fakeWindow {
	t.Helper()
	poller, err := drain.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	defer poller.Close()
	w := &fakeWindow{memory: mapped(t, size)}
	seen := 0
	d, err := ListenDatagram(DatagramConfig{
		Network: "udp4", Address: "127.0.0.1:0", FD: -1, MaxMessage: 10_000, ReceiveBuffer: 4 << 20, DrainInterval: -1, Poller: poller, Window: w,
		Handler: func(ms []Message, _ Window) {
			look(w, ms)
			seen += len(ms)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.AskPeers()
	c, err := net.Dial("udp4", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, text := range datagrams {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	close(stop) // Run takes what is queued
	if err := d.Run(stop); err != nil {
		t.Fatal(err)
	}
	return w
}

// While messages are with the handler, a window tells the same ones to whoever
// finds it; afterwards it tells none, and is zero where lengths are.
func TestLeftDatagrams(t *testing.T) {
	long := "<13>Oct  1 10:00:00 h long: " + strings.Repeat("x", 9000)
	datagrams := []string{
		"<14>Oct  1 10:00:00 h a: one", "\n", "<13>Oct  1 10:00:00 h b[7]: two\n", long,
		"<13>" + strings.Repeat("y", 11_000), "plain",
	}
	looked := false
	w := inWindow(t, 1<<20, datagrams, func(w *fakeWindow, ms []Message) {
		looked = true
		if !w.open {
			t.Error("the window is not open while its messages are handed out")
		}
		got, err := LeftDatagrams(bytes.Clone(w.memory), false, ms[0].Received)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(ms) || len(ms) != 5 {
			t.Fatalf("%d messages, want %d of 5", len(got), len(ms))
		}
		for i := range ms {
			g, m := &got[i], &ms[i]
			if string(g.Message) != string(m.Message) || string(g.Tag) != string(m.Tag) || g.Priority != m.Priority ||
				g.Peer != m.Peer || g.Truncated != m.Truncated || !g.Received.Equal(m.Received) {
				t.Errorf("message %d: %.60q, want %.60q", i, g.Message, m.Message)
			}
		}
		if got[3].Truncated != true || got[2].Truncated {
			t.Error("only the longest was cut")
		}
	})
	if !looked || w.open || w.ends == 0 {
		t.Errorf("looked %v, open %v, %d ends", looked, w.open, w.ends)
	}
	if got, err := LeftDatagrams(w.memory, false, time.Now()); len(got) != 0 || err != nil {
		t.Errorf("%d messages are left, %v", len(got), err)
	}
}

// A window in which no senders were asked for names none.
func TestLeftWithoutPeers(t *testing.T) {
	s, err := newSlots(1000, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.free()
	for i, text := range []string{"<13>Mar 15 10:20:30 a: x", "y"} {
		s.headers[i].n = uint32(copy(s.dense[i*denseSize:], text))
	}
	s.names[1] = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: netip.IPv6Loopback().As16()}
	s.filled = 2
	got, err := LeftDatagrams(bytes.Clone(s.memory), false, time.Now())
	if err != nil || len(got) != 2 || got[0].Peer != "" || got[1].Peer != "::1" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A small window has fewer slots, and loses nothing.
func TestSmallWindow(t *testing.T) {
	n := ReceiveMemory(10_000, 64<<10)
	if n == 0 || n > 64<<10 || ReceiveMemory(10_000, 4096) != 0 {
		t.Errorf("%d bytes wanted", n)
	}
	var datagrams []string
	for i := range 50 {
		datagrams = append(datagrams, strings.Repeat("z", 1+i*190))
	}
	i, bursts := 0, 0
	inWindow(t, n, datagrams, func(_ *fakeWindow, ms []Message) {
		bursts++
		for _, m := range ms {
			if string(m.Message) != datagrams[i] {
				t.Errorf("datagram %d: %d bytes, want %d", i, len(m.Message), len(datagrams[i]))
			}
			i++
		}
	})
	if i != 50 || bursts < 5 {
		t.Errorf("%d datagrams in %d bursts", i, bursts)
	}
	if _, err := newSlots(10_000, true, &fakeWindow{memory: mapped(t, 4096)}); err == nil {
		t.Error("a page is too little for a datagram")
	}
}

// FuzzLeftDatagrams: a damaged window tells something or nothing, from within.
func FuzzLeftDatagrams(f *testing.F) {
	memory := mapped(f, 64<<10)
	s, err := newSlots(3000, true, &fakeWindow{memory: memory})
	if err != nil {
		f.Fatal(err)
	}
	s.headers[0].n, s.headers[1].n = 5, 2900
	f.Add(uint32(0), []byte{})
	f.Add(uint32(4), []byte{255, 255})
	f.Add(uint32(slotsStart+56), []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		damaged := bytes.Clone(memory)
		copy(damaged[int(at)%len(damaged):], with)
		ms, err := LeftDatagrams(damaged, false, time.Now())
		if err != nil {
			return
		}
		for _, m := range ms {
			if len(m.Message) > len(damaged) {
				t.Errorf("%d bytes", len(m.Message))
			}
		}
	})
}

// A listener goes on in another window once the burst that is under way is
// over, whether it has anything to receive or not, and closes that one at its
// end.
func TestMove(t *testing.T) {
	first := &fakeWindow{memory: mapped(t, 1<<20)}
	second := &fakeWindow{memory: mapped(t, 1<<20)}
	in, goOn := make(chan Window), make(chan struct{})
	d, err := ListenDatagram(DatagramConfig{
		Network: "udp4", Address: "127.0.0.1:0", FD: -1, MaxMessage: 1000, DrainInterval: -1, Poller: newPoller(t), Window: first,
		Handler: func(ms []Message, w Window) {
			in <- w
			<-goOn
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, ran := make(chan struct{}), make(chan error, 1)
	go func() { ran <- d.Run(stop) }()
	c, err := net.Dial("udp4", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func() {
		if _, err := c.Write([]byte("text")); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if w := <-in; w != first {
		t.Error("a message is not in the window that was given")
	}
	moved := make(chan error, 1)
	go func() { moved <- d.Move(second) }()
	select {
	case <-moved:
		t.Error("the window is gone while its messages are with the handler")
	case goOn <- struct{}{}:
	}
	if err := <-moved; err != nil || !first.closed || first.open {
		t.Errorf("%v; closed %v, open %v", err, first.closed, first.open)
	}
	send()
	if w := <-in; w != second {
		t.Error("a message is not in the window that it was moved to")
	}
	goOn <- struct{}{}
	if err := d.Move(&fakeWindow{memory: mapped(t, slotsPage)}); err == nil || second.closed {
		t.Error("it was moved to a window that is too small")
	}
	close(stop)
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil || !second.closed {
		t.Errorf("%v; closed %v", err, second.closed)
	}
	late := &fakeWindow{memory: mapped(t, 1<<20)}
	if err := d.Move(late); err != nil || !late.closed {
		t.Errorf("after the end: %v; closed %v", err, late.closed)
	}
}

// Memory for 128 datagrams of the default size is what one socket gets of the
// default memory.cap: 1/7 of 64 MiB, 9 MiB at most.
func TestReceiveMemory(t *testing.T) {
	n := ReceiveMemory(64<<10, min(9<<20, 64<<20/7))
	s, err := newSlots(64<<10+framingSize, true, &fakeWindow{memory: mapped(t, wholePages(n))})
	if err != nil {
		t.Fatal(err)
	}
	if s.count < 128 {
		t.Errorf("%d datagrams", s.count)
	}
}
