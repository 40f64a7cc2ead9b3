package syslog

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memory is the daemon's memory as a stream sees it.
type memory struct {
	mu         sync.Mutex // guards all
	left       int
	most, used int
	refused    int
}

func (m *memory) reserve(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > m.left {
		m.refused++
		return false
	}
	m.left, m.used = m.left-n, m.used+n
	m.most = max(m.most, m.used)
	return true
}

func (m *memory) release(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.used = m.left+n, m.used-n
}

func (m *memory) get(field *int) func() int {
	return func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return *field
	}
}

// TestStreamIdle: F19: a frame half received is given out, and what follows of
// it, over a real connection.
func TestStreamIdle(t *testing.T) {
	var got sinkhole
	cfg := tcpConfig(got.take)
	cfg.IdleTimeout = 30 * time.Millisecond
	s := listenStream(t, cfg)
	run(t, s)
	c := dial(t, "tcp", s.Addr())
	begin := time.Now()
	send(t, c, "<13>Mar 15 10:20:30 h1 app: x")
	if m := got.wait(t, 1)[0]; m.text != "x" || !m.partial || time.Since(begin) < cfg.IdleTimeout {
		t.Errorf("%+v after %v", m, time.Since(begin))
	}
	send(t, c, "yz\nnext\n")
	if all := got.wait(t, 3); all[1].text != "yz" || !all[1].partial || all[2].text != "next" || all[2].partial {
		t.Errorf("%+v", all[1:])
	}
	if n := s.Stats().Partial; n != 2 {
		t.Errorf("%d partial", n)
	}
}

// TestConnIdle: SE09: the time of a frame counts from its first byte, whatever
// drips in after it; it is no other frame's; and a connection that holds
// nothing is left alone.
func TestConnIdle(t *testing.T) {
	type at struct {
		text    string
		partial bool
		after   time.Duration // since the test began
	}
	const s = time.Second
	tests := []struct {
		name  string
		every time.Duration // between sends
		sends []string
		want  []at
	}{
		{"silent", 60 * s, []string{"ab", "\ncd\n"}, []at{{"ab", true, 60 * s}, {"cd", false, 60 * s}}},
		{"drips", 25 * s, []string{"a", "b", "c", "d", "e\n"}, []at{{"abc", true, 60 * s}, {"de", true, 100 * s}}},
		{"another frame each time", 50 * s, []string{"a", "b\nc", "d\ne", "f\n"},
			[]at{{"ab", false, 50 * s}, {"cd", false, 100 * s}, {"ef", false, 150 * s}}},
		{"older deadline", 50 * s, []string{"a\nb", "c\nd", "", ""}, []at{{"a", false, 0}, {"bc", false, 50 * s}, {"d", true, 110 * s}}},
		{"nothing held", 3600 * s, []string{"a\n", "b\n"}, []at{{"a", false, 0}, {"b", false, 3600 * s}}},
		{"nothing left to give", 60 * s, []string{"a\r", "", "", "\nb\n"}, []at{{"a", true, 60 * s}, {"b", false, 180 * s}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []at
				begin := time.Now()
				stream := newStream(tcpConfig(func(ms []Message) {
					for _, m := range ms {
						got = append(got, at{string(m.Message), m.Partial, m.Received.Sub(begin)})
					}
				}))
				server, client := net.Pipe()
				go newConn(stream, server, netip.Addr{}).run()
				for i, text := range test.sends {
					if i > 0 {
						time.Sleep(test.every)
					}
					synctest.Wait()
					if text != "" {
						send(t, client, text)
					}
				}
				client.Close()
				synctest.Wait()
				if !slices.Equal(got, test.want) {
					t.Errorf("%v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestStreamMemory: a long half frame is reserved as it arrives; refused, its
// connection is read no further until there is room, and others are served.
func TestStreamMemory(t *testing.T) {
	var got sinkhole
	mem := &memory{left: 100 << 10}
	cfg := tcpConfig(got.take)
	cfg.MaxMessage, cfg.Reserve, cfg.Release = 1<<20, mem.reserve, mem.release
	s := listenStream(t, cfg)
	run(t, s)
	long := strings.Repeat("a", 500_000)
	c := dial(t, "tcp", s.Addr())
	sent := make(chan struct{})
	go func() { defer close(sent); io.WriteString(c, "500004 <1>"+long+"z1 x") }()
	eventually(t, "memory is refused", func() bool { return mem.get(&mem.refused)() > 0 })
	send(t, dial(t, "tcp", s.Addr()), "other\n")
	if m := got.wait(t, 1)[0]; m.text != "other" {
		t.Errorf("%+v", m)
	}
	mem.release(2 << 20) // room again; used goes below zero by as much
	if all := got.wait(t, 3); all[1].text != long+"z" || all[1].truncated || all[2].text != "x" {
		t.Errorf("%d bytes, %+v", len(all[1].text), all[2])
	}
	<-sent
	eventually(t, "all is given back", func() bool { return mem.get(&mem.used)() == -2<<20 })
}

// TestStreamMemoryIdle: the idle timeout holds where memory is refused.
func TestStreamMemoryIdle(t *testing.T) {
	var got sinkhole
	mem := &memory{}
	cfg := tcpConfig(got.take)
	cfg.IdleTimeout, cfg.Reserve, cfg.Release = 30*time.Millisecond, mem.reserve, mem.release
	s := listenStream(t, cfg)
	run(t, s)
	send(t, dial(t, "tcp", s.Addr()), strings.Repeat("a", 20_000)+"\nb\n")
	eventually(t, "all is given out", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return len(got.all) > 2 && got.all[len(got.all)-1].text == "b"
	})
	sum := ""
	for _, m := range got.all[:len(got.all)-1] {
		if sum += m.text; !m.partial {
			t.Errorf("a piece of %d bytes is not marked", len(m.text))
		}
	}
	if sum != strings.Repeat("a", 20_000) || mem.most != 0 {
		t.Errorf("%d bytes in pieces, %d reserved", len(sum), mem.most)
	}
}

// TestStreamIdleBuffers: CF09: under 32 KiB a connection, after load too.
func TestStreamIdleBuffers(t *testing.T) {
	var got sinkhole
	cfg := tcpConfig(got.take)
	cfg.MaxMessage = 1 << 20
	s := listenStream(t, cfg)
	stop := run(t, s)
	const conns = 20
	for range conns {
		c := dial(t, "tcp", s.Addr())
		send(t, c, strings.Repeat("a", 300_000)+"\n"+strings.Repeat(strings.Repeat("b", 7000)+"\n", 50))
	}
	got.wait(t, conns*51)
	var idle []*conn
	s.mu.Lock()
	for c := range s.conns {
		idle = append(idle, c)
	}
	s.mu.Unlock()
	stop() // a stop's last reads do not grow a buffer
	for _, c := range idle {
		if n := len(c.framer.buf); n >= 32<<10 {
			t.Errorf("%d bytes", n)
		}
	}
	if len(idle) != conns {
		t.Errorf("%d connections", len(idle))
	}
}
