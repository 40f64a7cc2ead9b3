package sink

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
	"logboom/syslog"
)

// timber makes sealed batches, as an intake does.
type timber struct {
	t   testing.TB
	buf *buffer.Buffer
}

func newTimber(t testing.TB) *timber {
	t.Helper()
	arena, err := buffer.NewArena(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := arena.Close(); err != nil {
			t.Error(err)
		}
	})
	limits := buffer.Limits{Messages: 1 << 20, Bytes: 8 << 20, Flush: time.Hour}
	return &timber{t, buffer.New("s", arena.Share(32<<20), limits)}
}

// batch encodes and frames messages.
func (w *timber) batch(framing Framing, messages ...string) *buffer.Batch {
	w.t.Helper()
	enc := encoder{format: Raw, escape: EscapeNone, framing: framing}
	w.buf.SetSpec(buffer.Limits{Messages: 1 << 20, Bytes: 8 << 20, Flush: time.Hour}, framing)
	w.buf.Begin()
	for _, text := range messages {
		var m syslog.Message
		m.Message = []byte(text)
		record, newline := enc.encode(&m, &Origin{})
		if !w.buf.Append(nil, record, newline, time.Now()) {
			w.t.Fatal("no memory")
		}
	}
	w.buf.End()
	w.buf.Seal(buffer.ByReopen)
	b, _ := w.buf.Next()
	if b == nil {
		w.t.Fatal("no batch")
	}
	w.t.Cleanup(func() { w.buf.Done(b, 0, "") })
	return b
}

// numbered returns n different messages of at least size bytes.
func numbered(prefix string, n, size int) []string {
	messages := make([]string, n)
	for i := range messages {
		messages[i] = fmt.Sprintf("<13>%s %06d ", prefix, i)
		messages[i] += strings.Repeat("x", max(size-len(messages[i]), 0))
	}
	return messages
}

// testForward has times that no test waits for, and a window for all.
func testForward(targets ...Target) *Forward {
	return &Forward{
		Targets: targets, ConnectTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		ResolveEvery: time.Hour, ResendWindow: 256 << 10,
	}
}

// startForwarder makes a forwarder whose connection ends with the test.
func startForwarder(t testing.TB, conf *Forward) *forwarder {
	t.Helper()
	f := newForwarder(conf, new(counters), zerolog.Nop())
	t.Cleanup(func() {
		if f.conn != nil {
			f.conn.close()
		}
	})
	return f
}

func mustDeliver(t testing.TB, f *forwarder, b *buffer.Batch) {
	t.Helper()
	if err := f.Deliver(b, nil); err != nil {
		t.Fatal(err)
	}
}

// deliverAtLast tries as the runner does.
func deliverAtLast(t testing.TB, f *forwarder, b *buffer.Batch) (tries int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		tries++
		err := f.Deliver(b, nil)
		if err == nil {
			return tries
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// within polls a condition that another goroutine or the kernel brings about.
func within(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// server is a syslog server over TCP. What it does with connections can be
// changed while it is down.
type server struct {
	t      testing.TB
	Target Target

	listener net.Listener
	working  sync.WaitGroup

	mu       sync.Mutex // guards the rest
	replies  bool       // says something before each read
	stopAt   int        // bytes after which a new connection is not read on; 0: never
	got      []string   // messages in order of arrival, cut ones marked
	conns    []*net.TCPConn
	down     bool
	accepted int
	ended    int           // connections that the client ended, read to the end
	resume   chan struct{} // closed: connections that stopped read on
}

func newServer(t testing.TB) *server {
	s := &server{t: t, resume: make(chan struct{})}
	s.listen("127.0.0.1:0")
	s.Target = Target{"tcp", s.listener.Addr().String()}
	t.Cleanup(func() { s.kill(true) })
	return s
}

func (s *server) listen(address string) {
	s.t.Helper()
	var err error
	if s.listener, err = net.Listen("tcp", address); err != nil {
		s.t.Fatal(err)
	}
	s.working.Go(s.serve)
}

// up starts a server again that was killed.
func (s *server) up() {
	s.t.Helper()
	s.resume = make(chan struct{})
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	s.listen(s.Target.Address)
}

func (s *server) serve() {
	listener, resume := s.listener, s.resume
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.down {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns = append(s.conns, c.(*net.TCPConn))
		s.accepted++
		stopAt, replies := s.stopAt, s.replies
		s.mu.Unlock()
		s.working.Go(func() { s.read(c, stopAt, replies, resume) })
	}
}

func (s *server) read(c net.Conn, stopAt int, replies bool, resume chan struct{}) {
	framer := syslog.NewFramer(syslog.FramingAuto, 1<<20)
	for total := 0; ; {
		if stopAt > 0 && total >= stopAt {
			<-resume
		}
		if replies {
			fmt.Fprint(c, "a syslog server has nothing to say\n")
		}
		room := framer.Space(1 << 16)
		if left := stopAt - total; left > 0 {
			room = room[:min(left, len(room))]
		}
		n, err := c.Read(room)
		total += n
		framer.Filled(n)
		if err != nil {
			framer.End()
		}
		s.take(framer, err)
		if err != nil {
			return
		}
	}
}

func (s *server) take(framer *syslog.Framer, end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for frame, ok := framer.Next(); ok; frame, ok = framer.Next() {
		text := string(frame.Text)
		if frame.Truncated {
			text += " [truncated]"
		}
		s.got = append(s.got, text)
	}
	if err := framer.Err(); err != nil {
		s.t.Errorf("framing: %v", err)
	}
	if end != nil && end.Error() == "EOF" {
		s.ended++
	}
}

// kill ends listener and connections: with FIN, or with RST.
func (s *server) kill(reset bool) {
	s.listener.Close()
	s.mu.Lock()
	s.down = true // for one that is just being accepted
	for _, c := range s.conns {
		if reset {
			c.SetLinger(0)
		}
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	select {
	case <-s.resume:
	default:
		close(s.resume)
	}
	s.working.Wait()
}

// reply makes new connections say something before each read.
func (s *server) reply(replies bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies = replies
}

// stop makes new connections stop reading after n bytes, until resume is
// closed; 0: never.
func (s *server) stop(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAt = n
}

func (s *server) messages() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

func (s *server) connections() (accepted, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted, s.ended
}

// awaits waits for n messages.
func (s *server) awaits(n int) []string {
	s.t.Helper()
	within(s.t, fmt.Sprintf("%d messages arrive", n), func() bool { return len(s.messages()) >= n })
	return s.messages()
}

// duplicates returns how many messages arrived that had arrived before.
func duplicates(got []string) int {
	seen := make(map[string]bool, len(got))
	for _, m := range got {
		seen[m] = true
	}
	return len(got) - len(seen)
}

// mustHave fails for each message that did not arrive.
func mustHave(t testing.TB, got, want []string) {
	t.Helper()
	seen := make(map[string]bool, len(got))
	for _, m := range got {
		seen[m] = true
	}
	for _, m := range want {
		if !seen[m] {
			t.Errorf("lost: %.60q", m)
		}
	}
}

func mustEqual(t testing.TB, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("message %d of %d is %.80q, want %.80q", i, len(got), got[i], want[i])
		}
	}
	t.Fatalf("got %d messages, want %d", len(got), len(want))
}
