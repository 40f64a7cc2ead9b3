package sink

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestForwardStream(t *testing.T) {
	for name, framing := range map[string]Framing{"lines": Lines, "octets": Octets} {
		t.Run(name, func(t *testing.T) {
			s, w := newServer(t), newTimber(t)
			f := startForwarder(t, testForward(s.Target))
			var want []string
			for i := range 5 {
				messages := numbered(fmt.Sprint(i), 1000, 100)
				mustDeliver(t, f, w.batch(framing, messages...))
				want = append(want, messages...)
			}
			if err := f.Close(nil); err != nil {
				t.Fatal(err)
			}
			mustEqual(t, s.awaits(len(want)), want)
			if n := f.counters.writes.Load(); n != 5 {
				t.Errorf("%d writes of 5 batches", n)
			}
			if n := f.counters.resent.Load(); n != 0 {
				t.Errorf("%d messages resent on one connection", n)
			}
		})
	}
}

// FW01: a write into a connection that the server has closed succeeds.

func TestForwardServerRestarts(t *testing.T) {
	for _, test := range []struct {
		name           string
		reset, replies bool
	}{{"FIN", false, false}, {"RST", true, false}, {"FIN behind text", false, true}} {
		t.Run(test.name, func(t *testing.T) {
			s, w := newServer(t), newTimber(t)
			s.reply(test.replies)
			f := startForwarder(t, testForward(s.Target))
			mustDeliver(t, f, w.batch(Lines, "m0"))
			s.awaits(1)
			s.kill(test.reset)
			s.up()
			mustDeliver(t, f, w.batch(Lines, "m1"))
			mustDeliver(t, f, w.batch(Lines, "m2"))
			mustEqual(t, s.awaits(4), []string{"m0", "m0", "m1", "m2"})
			if n := f.counters.resent.Load(); n != 1 {
				t.Errorf("%d messages counted as resent, 1 was", n)
			}
		})
	}
}

// FW02: what is made while the server is down arrives in order.

func TestForwardServerDown(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	s.kill(false)
	want := numbered("down", 1000, 50)
	first := w.batch(Lines, want[:500]...)
	for range 3 {
		if err := f.Deliver(first, nil); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("with the server down: %v", err)
		}
	}
	s.up()
	mustDeliver(t, f, first)
	mustDeliver(t, f, w.batch(Lines, want[500:]...))
	mustEqual(t, s.awaits(1000), want)
	if n := f.counters.resent.Load(); n != 0 {
		t.Errorf("%d messages counted as resent that were never sent", n)
	}
}

// Each time a server is killed with all read, the window goes out again: what

// it counts twice is what we count as resent.

func TestForwardResendWindow(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	conf := testForward(s.Target)
	conf.ResendWindow = 10_000
	f := startForwarder(t, conf)
	var want []string
	for i := range 20 {
		messages := numbered(fmt.Sprint("round ", i), 17*i+1, 90)
		mustDeliver(t, f, w.batch(Octets, messages...))
		want = append(want, messages...)
		s.awaits(len(want) + int(f.counters.resent.Load()))
		if i%3 == 2 {
			s.kill(i%2 == 0)
			s.up()
		}
	}
	got := s.messages()
	mustHave(t, got, want)
	resent := int(f.counters.resent.Load())
	if n := duplicates(got); n != resent || n == 0 {
		t.Errorf("%d duplicates arrived, %d were counted as resent", n, resent)
	}
	if most := 6 * conf.ResendWindow / 90; resent > most {
		t.Errorf("%d messages resent, over %d: more than the window", resent, most)
	}
}

// A connection that ends in the middle of a frame: the next one begins with a

// whole frame, and what the first had taken counts as resent when it goes out

// again, the cut frame, which a receiver gives out, included.

func TestForwardBreaksInFrame(t *testing.T) {
	for name, framing := range map[string]Framing{"lines": Lines, "octets": Octets} {
		t.Run(name, func(t *testing.T) {
			s, w := newServer(t), newTimber(t)
			s.stop(100_001)
			conf := testForward(s.Target)
			conf.WriteTimeout = 300 * time.Millisecond
			f := startForwarder(t, conf)
			want := numbered("big", 8000, 1000) // more than all buffers between
			b := w.batch(framing, want...)
			if err := f.Deliver(b, nil); err == nil {
				t.Fatal("delivered to a server that does not read")
			}
			s.stop(0)
			close(s.resume)
			// The first connection is read to its end before the next begins.
			within(t, "the first connection ends", func() bool { _, ended := s.connections(); return ended == 1 })
			first := s.messages()
			f.conf.WriteTimeout = 10 * time.Second
			mustDeliver(t, f, b)
			got := s.awaits(len(first) + len(want))
			mustEqual(t, got[len(first):], want)
			mustEqual(t, first[:len(first)-1], want[:len(first)-1])
			if n := int(f.counters.resent.Load()); n != len(first) {
				t.Errorf("%d messages counted as resent, %d arrived on the broken connection", n, len(first))
			}
		})
	}
}

// FW05: a server that accepts but never reads takes no longer than the write

// timeout, and is passed over then.

func TestForwardServerNeverReads(t *testing.T) {
	dead, alive, w := newServer(t), newServer(t), newTimber(t)
	dead.stop(1)
	conf := testForward(dead.Target, alive.Target)
	conf.WriteTimeout = 200 * time.Millisecond
	f := startForwarder(t, conf)
	want := numbered("big", 8000, 1000)
	b := w.batch(Lines, want...)
	start := time.Now()
	err := f.Deliver(b, nil)
	if took := time.Since(start); took < conf.WriteTimeout || took > 5*time.Second {
		t.Errorf("took %v with a write timeout of %v", took, conf.WriteTimeout)
	}
	if err == nil || !strings.Contains(err.Error(), "timeout") || !strings.Contains(err.Error(), dead.Target.String()) {
		t.Errorf("error %v", err)
	}
	f.conf.WriteTimeout = 10 * time.Second
	mustDeliver(t, f, b)
	mustEqual(t, alive.awaits(len(want)), want)
}

// What the kernel holds unsent must fit the window that could send it again.

func TestForwardKernelHoldsNoMoreThanWindow(t *testing.T) {
	for _, window := range []int{64 << 10, 256 << 10, 1 << 20} {
		s, w := newServer(t), newTimber(t)
		s.stop(1)
		conf := testForward(s.Target)
		conf.ResendWindow, conf.WriteTimeout = window, 200*time.Millisecond
		f := startForwarder(t, conf)
		mustDeliver(t, f, w.batch(Lines, "first"))
		st := f.conn.(*stream)
		b := w.batch(Lines, numbered("big", 8000, 1000)...)
		var p progress
		if err := st.deliver(b.Bytes(), Lines, &p, conf.WriteTimeout, nil); err == nil {
			t.Fatal("the kernel took 8 MB that nobody reads")
		}
		left, err := st.unacknowledged()
		if err != nil || left == 0 || left > window {
			t.Errorf("the kernel holds %d bytes with a window of %d, error %v", left, window, err)
		}
	}
}

// A receiver goes by the first frame of a connection.

func TestForwardFramingChanges(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	mustDeliver(t, f, w.batch(Lines, "<13>a", "<13>b"))
	mustDeliver(t, f, w.batch(Octets, "<13>c\nd", "<13>e"))
	mustDeliver(t, f, w.batch(Octets, "<13>f"))
	mustEqual(t, s.awaits(5), []string{"<13>a", "<13>b", "<13>c\nd", "<13>e", "<13>f"})
	if accepted, ended := s.connections(); accepted != 2 || ended != 1 {
		t.Errorf("%d connections, %d ended, want 2 and 1", accepted, ended)
	}

	// The window has the old framing: it goes out on a connection of its own.
	s.kill(false)
	s.up()
	mustDeliver(t, f, w.batch(Lines, "<13>g"))
	mustEqual(t, s.awaits(9), []string{"<13>a", "<13>b", "<13>c\nd", "<13>e", "<13>f", "<13>c\nd", "<13>e", "<13>f", "<13>g"})
	if accepted, _ := s.connections(); accepted != 4 {
		t.Errorf("%d connections, want 4", accepted)
	}
}

// What a server says is of no use, but unread it would turn the close into a

// reset, which cuts the last batch off.

func TestForwardClose(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	s.reply(true)
	f := startForwarder(t, testForward(s.Target))
	want := numbered("m", 20_000, 100)
	mustDeliver(t, f, w.batch(Octets, want...))
	if err := f.Close(nil); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, s.awaits(len(want)), want)
}

func TestForwardCloseAfterBreak(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	mustDeliver(t, f, w.batch(Octets, "<13>last"))
	s.awaits(1)
	s.kill(true)
	if err := f.Close(nil); err == nil || !strings.Contains(err.Error(), "may not have arrived") {
		t.Errorf("nobody takes the last message: %v", err)
	}
	s.up()
	if err := f.Close(nil); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, s.awaits(2), []string{"<13>last", "<13>last"})
}

// A server that does not read holds a stop up no longer than is useful.

func TestForwardCloseUnread(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	s.stop(1)
	f := startForwarder(t, testForward(s.Target))
	b := w.batch(Lines, numbered("big", 8000, 1000)...)
	f.conf.WriteTimeout = 200 * time.Millisecond
	if err := f.Deliver(b, nil); err == nil {
		t.Fatal("delivered to a server that does not read")
	}
	fill := w.batch(Lines, "one more")
	mustDeliver(t, f, fill)
	st := f.conn.(*stream)
	var p progress
	if err := st.deliver(b.Bytes(), Lines, &p, 200*time.Millisecond, nil); err == nil {
		t.Fatal("delivered to a server that does not read")
	}
	giveUp := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(giveUp) })
	start := time.Now()
	if err := f.Close(giveUp); err == nil || !strings.Contains(err.Error(), "not acknowledged") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > lingerTimeout {
		t.Errorf("took %v after giveUp", took)
	}
}

// Reconnections are logged, but a server that breaks each connection does not

// fill the log.

// FW18: a reload keeps the connection where it can, and changes the target at

// once where it must.

func TestForwardStreamAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f := startForwarder(t, testForward(Target{"tcp", listener.Addr().String()}))
	b := newTimber(t).batch(Octets, numbered("m", 1000, 100)...)
	mustDeliver(t, f, b)
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() { io.Copy(io.Discard, c) })
	n := testing.AllocsPerRun(100, func() {
		f.sequence = 0 // as if it were the next one
		if err := f.Deliver(b, nil); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	if err := f.Close(nil); err != nil {
		t.Error(err)
	}
	read.Wait()
	c.Close()
}
