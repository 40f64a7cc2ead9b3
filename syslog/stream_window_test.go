package syslog

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeArena is a row of windows, of which there is a copy as a kill leaves it.
type fakeArena struct {
	windows []*fakeStreamWindow
	room    int        // windows that may still be made; below 0: any number
	moments int        // that have passed
	killAt  int        // the moment of the kill; 0: never
	left    *fakeArena // what it has left
}

type fakeStreamWindow struct {
	arena  *fakeArena
	memory []byte
	burst  int // its number times two, plus 1 while it is open
	noted  int // messages of the burst
	noteOf int
	closed bool
}

type killed struct{}

// pass is a moment at which the process may be killed.
func (a *fakeArena) pass() {
	if a.killAt == 0 {
		return
	}
	if a.moments++; a.moments != a.killAt {
		return
	}
	a.left = &fakeArena{room: -1}
	for _, w := range a.windows {
		if !w.closed {
			copied := *w
			copied.arena, copied.memory = a.left, bytes.Clone(w.memory)
			a.left.windows = append(a.left.windows, &copied)
		}
	}
	panic(killed{})
}

func (a *fakeArena) take(n int) StreamWindow {
	if a.room == 0 {
		return nil
	}
	a.room--
	w := &fakeStreamWindow{arena: a, memory: make([]byte, n)}
	a.windows = append(a.windows, w)
	return w
}

func (w *fakeStreamWindow) Memory() []byte { return w.memory }

func (w *fakeStreamWindow) Begin() {
	w.arena.pass()
	w.burst |= 1
	w.arena.pass()
}

func (w *fakeStreamWindow) End() {
	w.arena.pass()
	w.burst = (w.burst | 1) + 1
	w.arena.pass()
}

func (w *fakeStreamWindow) Move(n int, fill func([]byte)) bool {
	if w.arena.room == 0 {
		return false
	}
	w.arena.room--
	memory := make([]byte, n)
	w.arena.pass()
	fill(memory)
	old := w.memory
	w.arena.pass()
	w.memory = memory
	clear(old)
	w.arena.pass()
	return true
}

func (w *fakeStreamWindow) IsOld() bool { return false }

func (w *fakeStreamWindow) Close() error {
	w.closed = true
	return nil
}

// taker is a handler that notes in the window what it has.
type taker struct{ got []string }

func (t *taker) take(ms []Message, in StreamWindow) {
	w, _ := in.(*fakeStreamWindow)
	if w == nil {
		w = &fakeStreamWindow{arena: &fakeArena{}}
	}
	if w.noteOf != w.burst {
		w.noteOf, w.noted = w.burst, 0
	}
	for i := w.noted; i < len(ms); i++ {
		w.arena.pass()
		t.got = append(t.got, show(Frame{ms[i].Message, ms[i].Truncated, ms[i].Partial}))
		w.noted++
		w.arena.pass()
	}
}

// socketConn is a connection, both ends of which are ours.
func socketConn(t *testing.T) (server net.Conn, client int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "")
	defer f.Close()
	server, err = net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return server, fds[1]
}

// crash sends a text in pieces, is killed at one moment, again at another while
// what is left is taken up, and takes up that. It returns what was handed out,
// how much of the text had been read, and false when there was no such moment.
func crash(t *testing.T, cfg StreamConfig, text string, step int, flush bool, first, second int) (got []string, read int, was bool) {
	t.Helper()
	arena := &fakeArena{room: -1, killAt: first}
	var to taker
	cfg.Handler, cfg.Window = to.take, arena.take
	s := newStream(cfg)
	server, client := socketConn(t)
	defer server.Close()
	defer unix.Close(client)
	c := newConn(s, server, netip.MustParseAddr("192.0.2.1"))
	survives(func() {
		for read < len(text) {
			n, err := unix.Write(client, []byte(text[read:min(len(text), read+step)]))
			if err != nil {
				t.Fatal(err)
			}
			for n > 0 {
				err := control(server, func(fd int) (err error) {
					c.n, err = c.readNow(fd)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				read += c.n
				n -= c.n
				arena.pass() // the kernel has copied
				c.filled(c.n)
				arena.pass()
				c.take()
			}
			if flush {
				c.since = time.Unix(1, 0)
				c.flushIdle()
			}
			if c.framer.Held() == 0 {
				c.kept.close(s, c.framer)
			}
		}
		c.framer.End()
		c.cut = true
		c.take()
	})
	if arena.left == nil {
		return to.got, read, false
	}
	for _, moment := range []int{second, 0} {
		left := arena.left
		if left == nil {
			break
		}
		arena = left
		left.killAt = moment
		survives(func() {
			for _, w := range left.windows {
				l, err := OpenLeftStream(w)
				if err != nil {
					t.Fatal(err)
				}
				if l.Holds() {
					ms := l.Messages(cfg.Raw, time.Now())
					to.take(ms, w)
					if len(ms) > 0 && ms[0].Peer != "192.0.2.1" {
						t.Errorf("of %q", ms[0].Peer)
					}
					l.Done()
				}
				w.Close()
			}
		})
	}
	return to.got, read, true
}

// survives calls what may be killed.
func survives(f func()) {
	defer func() {
		if r := recover(); r != nil {
			_ = r.(killed)
		}
	}()
	f()
}

// Wherever a process is killed, each frame of what was read of a connection is
// handed out once and in order.
func TestKillOfConn(t *testing.T) {
	counted := func(frames ...string) (s string) {
		for _, f := range frames {
			s += fmt.Sprintf("%d %s", len(f), f)
		}
		return s
	}
	texts := map[string]string{
		"lines":      strings.Repeat("a line\nb\r\n\nc\x00<d\n", 4) + "the last",
		"many lines": strings.Repeat("x\n", 3*batchSize),
		"zeros":      strings.Repeat("a\x00\x00b\n\x00", 5) + "\x00\x00",
		"counted":    counted("<1>first", "<2>second\nof two", strings.Repeat("z", 200), "<3>third") + "5 <4>",
		"grows":      "first\n" + strings.Repeat("x", 30_000) + "\nlast\n" + strings.Repeat("y", 20_000),
		"count":      counted("<1>x", strings.Repeat("c", 40_000), "d") + "12",
	}
	for name, text := range texts {
		for _, limit := range []int{1 << 20, 100, 5} {
			for _, step := range []int{1, 7, 3000, 100_000} {
				for _, flush := range []bool{false, true} {
					if len(text)/step > 300 || flush && (limit < 1<<20 || strings.HasPrefix(name, "count")) {
						continue // flushed before it is known, counted ones are taken for lines
					}
					cfg := StreamConfig{MaxMessage: limit, Raw: true, IdleTimeout: time.Minute,
						Reserve: func(int) bool { return true }, Release: func(int) {}}
					for first, was := 1, true; was; first += 1 + first/100 {
						var got []string
						var read int
						got, read, was = crash(t, cfg, text, step, flush, first, 1+first%7)
						want := framesOf(limit, text[:read])
						if flush {
							got, want = joinedText(got), joinedText(want)
						}
						if !slices.Equal(got, want) {
							t.Fatalf("%s by %d, %d at most, flushed %v, killed at %d: %.300q, want %.300q", name, step, limit, flush, first, got, want)
						}
					}
				}
			}
		}
	}
}

// framesOf are the frames of a stream that we end.
func framesOf(limit int, text string) (frames []string) {
	f := NewFramer(FramingAuto, limit)
	f.Filled(copy(f.Space(max(len(text), 1)), text))
	frames = drainFramer(f)
	f.End()
	for frame, ok := f.Next(); ok; frame, ok = f.Next() {
		frame.Partial = true
		frames = append(frames, show(frame))
	}
	return frames
}

func joinedText(frames []string) []string {
	all := strings.NewReplacer(" [partial]", "", " [truncated]", "").Replace(strings.Join(frames, ""))
	return []string{strings.NewReplacer("\x00", "", "\r", "").Replace(all)}
}

// A connection has a window while it holds something: an idle one has none, and
// where there is none it does without.
func TestStreamWindows(t *testing.T) {
	for _, room := range []int{-1, 2, 0} {
		arena := &fakeArena{room: room}
		var got sinkhole
		cfg := tcpConfig(nil)
		var mu sync.Mutex // guards arena
		cfg.Window = func(n int) StreamWindow {
			mu.Lock()
			defer mu.Unlock()
			return arena.take(n)
		}
		cfg.Handler = func(ms []Message, _ StreamWindow) { got.take(ms) }
		s := listenStream(t, cfg)
		stop := run(t, s)
		const conns = 20
		var all []net.Conn
		for i := range conns {
			c := dial(t, "tcp", s.Addr())
			send(t, c, fmt.Sprintf("%d\nhalf", i))
			all = append(all, c)
		}
		got.wait(t, conns)
		for _, c := range all {
			send(t, c, " and half\n")
		}
		got.wait(t, 2*conns)
		idle := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if room > 0 {
				return len(s.spare) == room
			}
			return len(s.spare) == min(conns, spareWindows)&room
		}
		eventually(t, "idle connections have no window", idle)
		stop()
		s.Close()
		mu.Lock()
		for _, w := range arena.windows {
			if !w.closed {
				t.Error("a window is not closed")
			}
		}
		mu.Unlock()
	}
}

// A window that is damaged is refused, or what it holds is handed out, and
// nothing outside it is touched.
func FuzzOpenLeftStream(f *testing.F) {
	arena := &fakeArena{room: -1}
	s := newStream(StreamConfig{Window: arena.take})
	framer := NewFramer(FramingAuto, 100)
	var k keptStream
	k.open(s, "192.0.2.1", framer)
	framer.Filled(copy(k.space(framer), "6 <1>one8 <2>thr"))
	k.update(framer)
	f.Add(bytes.Clone(arena.windows[0].memory[:300]))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, memory []byte) {
		memory = append(make([]byte, 0, len(memory)+8), memory...) // aligned
		l, err := OpenLeftStream(&fakeStreamWindow{arena: &fakeArena{}, memory: memory})
		if err != nil || !l.Holds() {
			return
		}
		total := 0
		for _, m := range l.Messages(true, time.Now()) {
			total += len(m.Message)
		}
		if total > len(memory) {
			t.Errorf("%d bytes out of %d", total, len(memory))
		}
		l.Done()
	})
}
