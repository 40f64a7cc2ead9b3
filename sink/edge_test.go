package sink

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"logboom/buffer"
	"logboom/gzipwriter"
	"logboom/syslog"
)

// cramped is the config of a sink that has room for four batches of a page,
// each full with two messages of 1,800 bytes.
func cramped(t testing.TB, format Format) Config {
	conf := keyed(t, never, Backoff{})
	conf.Path = mustPath(t, "/p/x")
	conf.Memory = 4 * buffer.PageSize
	conf.Limits = buffer.Limits{Messages: 2, Bytes: buffer.PageSize, Flush: never}
	conf.Format, conf.Notices = format, format != Raw
	return conf
}

// stuck is a sink whose batches stay until let is called.
type stuck struct {
	*running
	*home
	let func()
}

// inCramped runs f in a bubble with a stuck sink.
func inCramped(t *testing.T, conf Config, f func(t *testing.T, s *stuck)) {
	t.Helper()
	arena := newArena(t, 4*buffer.PageSize)
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{running: makeSink(t, conf, arena), home: newHome(t)}
		s.let = s.running.run
		s.Sink.run.to = s.home
		f(t, s)
	})
}

var big = strings.Repeat("x", 1800)

// fill appends messages until memory is full: eight of them are taken.
func (s *stuck) fill(t testing.TB, e *Edge) {
	t.Helper()
	for i := range 8 {
		put(t, e, message(fmt.Sprint(i, big)))
	}
}

// With drop, what has no room is dropped at once and counted, and told before
// the next message, in the form of the sink, and in the batch's header.
func TestDrop(t *testing.T) {
	for format, notice := range map[Format]string{
		Raw:     "",
		RFC3164: `<44>\w{3} .. ..:..:.. here logboom: 5 messages dropped: memory full` + "\n",
		RFC5424: `<44>1 \S+ here logboom - - - 5 messages dropped: memory full` + "\n",
		JSON:    `{"time":"[^"]+","received":"[^"]+","host":"here","program":"logboom",[^\n]*"message":"5 messages dropped: memory full"}` + "\n",
	} {
		inCramped(t, cramped(t, format), func(t *testing.T, s *stuck) {
			e := s.Edge(0, nil)
			o := &Origin{LocalHost: "here"}
			var dropped []int
			s.fail = func(b *buffer.Batch, _ int) error {
				dropped = append(dropped, b.Dropped)
				return nil
			}
			if e.Waits() {
				t.Error("it waits")
			}
			var sum Tally
			for range 13 {
				sum.Add(e.Append(o, []syslog.Message{message(big)}))
			}
			if want := (Tally{Accepted: 8, Dropped: 5}); sum != want {
				t.Fatalf("%s: tally %+v, want %+v", format, sum, want)
			}
			s.let()
			synctest.Wait()
			sum.Add(e.Append(o, []syslog.Message{message("after"), message("later")}))
			st := s.finish()
			text := s.got("/p/x")
			after := `[^\n]*after[^\n]*\n[^\n]*later[^\n]*\n`
			if !regexp.MustCompile(`x[^\n]*\n` + notice + after + `$`).MatchString(text) {
				t.Errorf("%s: the end is %q", format, text[len(text)-600:])
			}
			notices := uint64(min(len(notice), 1))
			if sum.Accepted != 10 || st.Accepted != 10 || st.Delivered != 10 || st.Notices != notices {
				t.Errorf("%s: tally %+v, status %+v", format, sum, st)
			}
			if len(dropped) != 5 || dropped[4] != 5 || dropped[3] != 0 {
				t.Errorf("%s: headers tell of %d dropped messages", format, dropped)
			}
		})
	}
}

// A notice never takes the room of a message by itself: while messages are
// too large for what is left, the gap grows, and is told once.
func TestOneNoticeForAGap(t *testing.T) {
	conf := cramped(t, RFC5424)
	conf.Limits.Bytes = 4 * buffer.PageSize
	inCramped(t, conf, func(t *testing.T, s *stuck) {
		e := s.Edge(0, nil)
		put(t, e, message(big), message(big), message("small"), message("small"))
		for range 20 {
			large := message(strings.Repeat("y", 3*buffer.PageSize))
			if tally := e.Append(new(Origin), []syslog.Message{large}); tally.Dropped != 1 {
				t.Fatalf("tally %+v", tally)
			}
		}
		put(t, e, message("fits"), message("fits too"))
		s.let()
		st := s.finish()
		if text := s.got("/p/x"); strings.Count(text, "dropped") != 1 || !strings.Contains(text, "20 messages dropped: memory full\n") {
			t.Errorf("text %q", text[2*len(big):])
		}
		if st.Notices != 1 {
			t.Errorf("%d notices", st.Notices)
		}
	})
}

// With block, a source waits until there is room, and nothing is dropped.
func TestBlock(t *testing.T) {
	inCramped(t, cramped(t, Raw), func(t *testing.T, s *stuck) {
		e := s.Edge(-1, nil)
		s.fill(t, e)
		done := make(chan Tally)
		go func() { done <- e.Append(new(Origin), []syslog.Message{message(big), message("last")}) }()
		time.Sleep(never)
		select {
		case <-done:
			t.Fatal("it did not wait")
		default:
		}
		s.let()
		if tally := <-done; tally != (Tally{Accepted: 2}) || !e.Waits() {
			t.Errorf("tally %+v", tally)
		}
		if st := s.finish(); st.Delivered != 10 || !strings.HasSuffix(s.got("/p/x"), "\nlast\n") {
			t.Errorf("status %+v", st)
		}
	})
}

// With a time, a source waits that long once, then drops until there is room,
// and may wait again after that.
func TestWaitThenDrop(t *testing.T) {
	inCramped(t, cramped(t, RFC3164), func(t *testing.T, s *stuck) {
		e := s.Edge(Policy(time.Second), nil)
		s.fill(t, e)
		for _, want := range []time.Duration{time.Second, 0, 0} {
			before := time.Now()
			tally := e.Append(new(Origin), []syslog.Message{message(big)})
			if waited := time.Since(before); waited != want || tally != (Tally{Dropped: 1}) {
				t.Errorf("waited %v, want %v; tally %+v", waited, want, tally)
			}
		}
		// One batch makes room; two messages fill it again.
		free := func() {
			b, _ := s.buf.Next()
			s.buf.Done(b, 0, "")
		}
		free()
		put(t, e, message("a"), message("b"))
		time.AfterFunc(500*time.Millisecond, free)
		before := time.Now()
		put(t, e, message("c"))
		if waited := time.Since(before); waited != 500*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		s.let()
		s.finish()
		if text := s.got("/p/x"); !strings.Contains(text, "3 messages dropped: memory full\n") {
			t.Errorf("text %q", text)
		}
	})
}

// A block of lines ends the dropping of an edge as a line does.
func TestLinesEndDropping(t *testing.T) {
	conf := cramped(t, Raw)
	inCramped(t, conf, func(t *testing.T, s *stuck) {
		e := s.Edge(Policy(time.Second), nil)
		e.dropping = true // and another source told of it
		if tally := e.AppendLines(new(Origin), []byte("1\n2\n"), 2, time.Now()); tally.Accepted != 2 || e.dropping {
			t.Errorf("tally %+v, dropping %v", tally, e.dropping)
		}
		s.let()
		s.finish()
	})
}

// giveUp releases an edge that waits; what it held is dropped for that reason.
func TestGiveUpReleasesEdge(t *testing.T) {
	inCramped(t, cramped(t, RFC3164), func(t *testing.T, s *stuck) {
		giveUp := make(chan struct{})
		e := s.Edge(-1, giveUp)
		s.fill(t, e)
		done := make(chan Tally)
		go func() { done <- e.AppendLines(new(Origin), []byte("1\n2\n3\n"), 3, time.Now()) }()
		time.Sleep(time.Minute)
		close(giveUp)
		if tally := <-done; tally != (Tally{Stopped: 3}) {
			t.Errorf("tally %+v", tally)
		}
		s.let()
		if st := s.finish(); st.Delivered != 8 {
			t.Errorf("status %+v", st)
		}
	})
}

// A sink that is stuck never slows another.
func TestStuckSinkAlone(t *testing.T) {
	arena := newArena(t, 8*buffer.PageSize)
	synctest.Test(t, func(t *testing.T) {
		full := makeSink(t, cramped(t, Raw), arena)
		works := makeSink(t, cramped(t, Raw), arena)
		h := newHome(t)
		works.Sink.run.to = h
		works.run()
		e := full.Edge(-1, full.giveUp)
		stuck := make(chan Tally)
		go func() {
			var sum Tally
			for range 100 {
				sum.Add(e.Append(new(Origin), []syslog.Message{message(big)}))
			}
			stuck <- sum
		}()
		synctest.Wait()
		before := time.Now()
		put(t, works.Edge(0, nil), message(big))
		for range 1000 {
			put(t, works.Edge(0, nil), message(big))
			synctest.Wait()
		}
		if time.Since(before) != 0 {
			t.Error("it waited")
		}
		if st := works.finish(); st.Delivered != 1001 {
			t.Errorf("status %+v", st)
		}
		close(full.giveUp)
		if sum := <-stuck; sum.Accepted+sum.Stopped != 100 || sum.Accepted < 8 {
			t.Errorf("tally %+v", sum)
		}
		home := newHome(t)
		full.Sink.run.to = home
		full.giveUp = make(chan struct{})
		full.run()
		full.finish()
	})
}

// Every message of a call is in its tally, whatever became of it.
func TestTally(t *testing.T) {
	conf := cramped(t, Raw)
	conf.Match = Match{Message: regexp.MustCompile("^take")}
	inCramped(t, conf, func(t *testing.T, s *stuck) {
		e := s.Edge(0, nil)
		var sum Tally
		for i := range 50 {
			a, b := message("take "+big), message("leave it")
			sum.Add(e.Append(new(Origin), []syslog.Message{a, b, b}))
			sum.Add(e.AppendLines(new(Origin), []byte("take 1\nleave\n"), 2, time.Now()))
			sum.Add(e.AppendPiece(new(Origin), []byte("take piece"), true, time.Now()))
			if all := sum.Accepted + sum.Filtered + sum.Dropped + sum.Stopped; all != uint64(6*(i+1)) {
				t.Fatalf("tally %+v after %d messages", sum, 6*(i+1))
			}
		}
		s.let()
		if st := s.finish(); st.Accepted != sum.Accepted || sum.Filtered != 150 || sum.Dropped == 0 || sum.Accepted == 0 {
			t.Errorf("tally %+v, accepted %d", sum, st.Accepted)
		}
	})
}

// Lines are records as their form says; what is not one line each is escaped.
func TestAppendLines(t *testing.T) {
	o := &Origin{Source: "app", Stream: "stderr", LocalHost: "here", Priority: 14, Program: []byte("php"), PID: []byte("7")}
	at := time.Now()
	for _, tt := range []struct {
		conf func(*Config)
		text string
		want string
	}{
		{func(*Config) {}, "a\n\nb\n", "a\n\nb\n"},
		{func(*Config) {}, "a\r\nb\x00\n\n", "a#015\nb#000\n\n"},
		{func(c *Config) { c.Escape = EscapeNone }, "a\r\nb\x00\n", "a\r\nb\x00\n"},
		{func(c *Config) { c.Escape = EscapeControl }, "a\x1b\n", "a#033\n"},
		{func(c *Config) { c.Framing = Octets }, "abc\n\n", "3 abc0 "},
		{func(c *Config) { c.Match.Message = regexp.MustCompile("b") }, "a\nb\n", "b\n"},
		{func(c *Config) {
			c.Format, c.Template = Templated, mustTemplate(t, "$program[$pid] $stream $severity: $message")
		},
			"a\nb\n", "php[7] stderr info: a\nphp[7] stderr info: b\n"},
		{func(c *Config) { c.Format, c.Template = Templated, mustTemplate(t, "$host $1 $source") }, "a b\n", "here a app\n"},
		{func(c *Config) { c.Limits.Messages = 2 }, strings.Repeat("x\n", 7), strings.Repeat("x\n", 7)},
	} {
		conf := keyed(t, never, Backoff{})
		conf.Path = nil
		tt.conf(&conf)
		inBubble(t, conf, func(t *testing.T, s *running, h *home) {
			e := s.Edge(0, nil)
			lines := strings.Count(tt.text, "\n")
			if tally := e.AppendLines(o, []byte(tt.text), lines, at); tally.Accepted+tally.Filtered != uint64(lines) {
				t.Errorf("%q: tally %+v", tt.text, tally)
			}
			s.finish()
			if got := h.got(""); got != tt.want {
				t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

// Pieces of lines are records of their own, marked where the form can.
func TestAppendPiece(t *testing.T) {
	conf := keyed(t, never, Backoff{})
	conf.Path, conf.Format = nil, JSON
	inBubble(t, conf, func(t *testing.T, s *running, h *home) {
		e := s.Edge(0, nil)
		e.AppendPiece(new(Origin), []byte("half"), true, time.Now())
		e.AppendPiece(new(Origin), []byte("end"), false, time.Now())
		s.finish()
		lines := strings.Split(h.got(""), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], `"partial":true,"message":"half"`) || strings.Contains(lines[1], "partial") {
			t.Errorf("%q", lines)
		}
	})
}

// What the kernel dropped is told where all messages go to one path.
func TestKernelGap(t *testing.T) {
	for path, want := range map[string]string{
		"/p/x":     "<44>... .. ..:..:.. h logboom: 7 messages dropped: kernel queue full\n",
		"/p/$host": "",
	} {
		conf := keyed(t, never, Backoff{})
		conf.Path, conf.Format, conf.Notices = mustPath(t, path), RFC3164, true
		inBubble(t, conf, func(t *testing.T, s *running, h *home) {
			e := s.Edge(0, nil)
			e.Gap(3, KernelQueue)
			e.Gap(4, KernelQueue)
			o := &Origin{LocalHost: "h"}
			e.Append(o, []syslog.Message{fromHost("x", "m")})
			s.finish()
			if got := h.got("/p/x"); !regexp.MustCompile("^" + want + "<13>[^\n]*m\n$").MatchString(got) {
				t.Errorf("%s: %q", path, got)
			}
		})
	}
}

// The config changes while messages flow: none is lost, and each is written
// as it was meant when it was taken.
func TestSetWhileMessagesFlow(t *testing.T) {
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "a.log"))
	conf.Limits.Flush = time.Millisecond
	s := start(t, conf)
	const sources = 3
	var sent atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for source := range sources {
		all.Go(func() {
			e := s.Edge(-1, nil)
			for i := 0; !ended(stop); i++ {
				text := fmt.Sprintf("%d-%d\n", source, i)
				e.Append(new(Origin), []syslog.Message{message("m" + strings.TrimSpace(text))})
				e.AppendLines(new(Origin), []byte("l"+text), 1, time.Now())
				sent.Add(2)
			}
		})
	}
	other := conf
	other.Path, other.File.Compress, other.Format = mustPath(t, filepath.Join(dir, "b.log.gz")), gzipwriter.Gzip, JSON
	for i := range 40 {
		before := sent.Load()
		s.Set([]Config{other, conf}[i%2])
		eventually(t, "messages with this config", func() bool { return sent.Load() > before+2*sources })
	}
	close(stop)
	all.Wait()
	want := int(sent.Load())
	if st := s.finish(); st.Delivered != uint64(want) {
		t.Errorf("status %+v", st)
	}
	plain, inJSON := read(t, filepath.Join(dir, "a.log")), read(t, filepath.Join(dir, "b.log.gz"))
	seen := make(map[string]bool)
	for line := range strings.Lines(plain) {
		if line[0] != 'm' && line[0] != 'l' {
			t.Fatalf("a.log has %q", line)
		}
		seen[strings.TrimSpace(line)] = true
	}
	pattern := regexp.MustCompile(`^{.*"message":"([ml]\d-\d+)"}\n$`)
	for line := range strings.Lines(inJSON) {
		m := pattern.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("b.log.gz has %q", line)
		}
		seen[m[1]] = true
	}
	if n := strings.Count(plain, "\n") + strings.Count(inJSON, "\n"); n != want || len(seen) != n {
		t.Errorf("%d lines, %d different, of %d", n, len(seen), want)
	}
}

// An edge that waits takes the rest of its lines as the new config says.
func TestSetWhileLinesWait(t *testing.T) {
	conf := cramped(t, Raw)
	inCramped(t, conf, func(t *testing.T, s *stuck) {
		e := s.Edge(-1, nil)
		s.fill(t, e)
		done := make(chan Tally)
		go func() { done <- e.AppendLines(new(Origin), []byte("1\n2\n3\n"), 3, time.Now()) }()
		synctest.Wait()
		conf.Path, conf.Format = mustPath(t, "/p/y"), RFC3164
		s.Set(conf)
		s.let()
		if tally := <-done; tally != (Tally{Accepted: 3}) {
			t.Errorf("tally %+v", tally)
		}
		s.finish()
		if got := s.got("/p/y"); !regexp.MustCompile(`^<0>.* 1\n<0>.* 2\n<0>.* 3\n$`).MatchString(got) {
			t.Errorf("%q", got)
		}
		if strings.Count(s.got("/p/x"), "\n") != 8 {
			t.Errorf("%d old lines", strings.Count(s.got("/p/x"), "\n"))
		}
	})
}

// openCrowd opens so many batches that paths are looked up before messages are
// appended.
func (s *running) openCrowd(t testing.TB, e *Edge) {
	t.Helper()
	for i := range crowd {
		put(t, e, fromHost(fmt.Sprint("crowd", i), "m"))
	}
}

// Among many paths each gets its messages in order, though batches end, and
// begin, between the look at a path and the append.
func TestCrowd(t *testing.T) {
	inBubble(t, keyed(t, never, Backoff{}), func(t *testing.T, s *running, h *home) {
		conf := s.conf
		conf.Limits.Messages = 3
		s.Set(conf)
		e := s.Edge(-1, nil)
		random := rand.New(rand.NewPCG(1, 2))
		want := make(map[string]string)
		for n := 0; n < 5000; {
			var ms []syslog.Message
			for range random.IntN(3 * together) {
				host := fmt.Sprint("crowd", random.IntN(3*crowd)*min(random.IntN(3), 1)) // a third of all to the first
				text := fmt.Sprint(host, " ", n)
				ms = append(ms, fromHost(host, text))
				want["/p/"+host] += text + "\n"
				n++
			}
			put(t, e, ms...)
			if n > 1000 && s.buf.Open() < crowd {
				t.Fatal("no crowd")
			}
		}
		s.finish()
		for path, text := range want {
			if got := h.got(path); got != text {
				t.Errorf("%s: %q, want %q", path, got, text)
			}
		}
	})
}

// A name that is one too many takes the place of no other.
func TestCrowdOverflows(t *testing.T) {
	conf := keyed(t, never, Backoff{})
	conf.MaxNewFiles = crowd + 1
	inBubble(t, conf, func(t *testing.T, s *running, h *home) {
		e := s.Edge(0, nil)
		s.openCrowd(t, e)
		for range 2 {
			put(t, e, fromHost("a", "1"), fromHost("b", "2"), fromHost("a", "3"), fromHost("c", "4"), fromHost("crowd0", "5"))
		}
		s.finish()
		for path, want := range map[string]string{"/p/a": "1\n3\n1\n3\n", "/p/_overflow": "2\n4\n2\n4\n", "/p/crowd0": "m\n5\n5\n"} {
			if got := h.got(path); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
	})
}

// What was rendered before a wait is not used after it.
func TestSetWhileCrowdWaits(t *testing.T) {
	const room = crowd * 4 / 3 // pages; with less free, open batches are sealed
	conf := keyed(t, never, Backoff{})
	conf.Memory = room * buffer.PageSize
	arena := newArena(t, room*buffer.PageSize)
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{running: makeSink(t, conf, arena), home: newHome(t)}
		s.Sink.run.to = s.home
		e := s.Edge(-1, nil)
		s.openCrowd(t, e)
		var ms []syslog.Message
		for i := range together {
			ms = append(ms, fromHost(fmt.Sprint("h", i), "m"))
		}
		done := make(chan Tally)
		go func() { done <- e.Append(new(Origin), ms) }()
		synctest.Wait()
		before := int(s.Status().Accepted) - crowd
		if before <= 0 || before >= together-1 {
			t.Fatalf("%d of %d are taken before the wait", before, together)
		}
		conf.Path = mustPath(t, "/q/$host")
		s.Set(conf)
		s.running.run()
		if tally := <-done; tally != (Tally{Accepted: together}) {
			t.Errorf("tally %+v", tally)
		}
		s.finish()
		for i := range together {
			was, is := s.got(fmt.Sprint("/p/h", i)), s.got(fmt.Sprint("/q/h", i))
			if i < before && was != "m\n" || i >= before && is != "m\n" {
				t.Errorf("message %d of %d: %q in the old path, %q in the new", i, before, was, is)
			}
		}
	})
}

// The path of a message allocates nothing, in any format that needs no map.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	tmpl := mustTemplate(t, "$time $host $program[$pid] $facility.$severity $1 $message")
	o := &Origin{Source: "nginx", LocalHost: "here", Zone: time.Local, Program: []byte("php")}
	m := scanned(nohost)
	m.Received = time.Now()
	ms := []syslog.Message{m, scanned(bsd), scanned(multi)}
	block := bytes.Repeat([]byte("a line of a program\n"), 50)
	var many bool
	for name, set := range map[string]func(*Config){
		"raw":               func(*Config) {},
		"raw, escaped":      func(c *Config) { c.Escape = EscapeControl },
		"raw, counted":      func(c *Config) { c.Framing = Octets },
		"rfc3164":           func(c *Config) { c.Format = RFC3164 },
		"rfc5424, counted":  func(c *Config) { c.Format, c.Framing = RFC5424, Octets },
		"json":              func(c *Config) { c.Format = JSON },
		"template":          func(c *Config) { c.Format, c.Template = Templated, tmpl },
		"path with names":   func(c *Config) { c.Path, c.MaxNewFiles = mustPath(t, "/p/$host/$program-%F"), 10 },
		"many paths":        func(c *Config) { c.Path, many = mustPath(t, "/p/$host"), true },
		"path of the time":  func(c *Config) { c.Path = mustPath(t, "/p/%F") },
		"match":             func(c *Config) { c.Match = Match{Severities: 1 << 6, Programs: []string{"a", "nginx"}} },
		"match of the text": func(c *Config) { c.Match = Match{Message: regexp.MustCompile("GET")} },
	} {
		conf := keyed(t, never, Backoff{})
		conf.Path, conf.Limits.Bytes = nil, 512<<10
		many = false
		set(&conf)
		s := makeSink(t, conf, newArena(t, 64<<20))
		e := s.Edge(0, nil)
		if many {
			s.openCrowd(t, e)
		}
		// A batch holds thousands of messages, so its own cost counts as none.
		for what, f := range map[string]func(){
			"Append":      func() { e.Append(o, ms) },
			"AppendLines": func() { e.AppendLines(o, block, 50, m.Received) },
		} {
			if n := testing.AllocsPerRun(300, f); n != 0 {
				t.Errorf("%s: %s: %v allocations", name, what, n)
			}
		}
		s.Sink.run.to = newHome(t)
		s.run()
		s.finish()
	}
}
