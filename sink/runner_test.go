package sink

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
)

// home is a Deliverer that checks what it is given: each batch comes home
// once, and those of a key in order.
type home struct {
	t       testing.TB
	fail    func(b *buffer.Batch, try int) error // nil: never
	tries   map[uint64]int
	texts   map[string][]string // delivered, by key
	last    map[string]uint64   // sequence, by key
	times   []time.Duration     // of all tries, since began
	began   time.Time
	reopens int
	closed  int

	mu sync.Mutex // guards all but t and fail: tests look in while the runner works
}

func newHome(t testing.TB) *home {
	return &home{
		t: t, tries: make(map[uint64]int), texts: make(map[string][]string),
		last: make(map[string]uint64), began: time.Now(),
	}
}

func (h *home) Deliver(b *buffer.Batch, _ <-chan struct{}) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed > 0 {
		h.t.Error("a batch after Close")
	}
	if b.Sequence <= h.last[b.Key] {
		h.t.Errorf("batch %d of %q after %d", b.Sequence, b.Key, h.last[b.Key])
	}
	h.tries[b.Sequence]++
	h.times = append(h.times, time.Since(h.began))
	if h.fail != nil {
		err := h.fail(b, h.tries[b.Sequence])
		var refused *Refused
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		if refused != nil {
			h.last[b.Key] = b.Sequence
			return err
		}
	}
	h.last[b.Key] = b.Sequence
	h.texts[b.Key] = append(h.texts[b.Key], string(b.Bytes()))
	return nil
}

func (h *home) Reopen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reopens++
}

func (h *home) Close(<-chan struct{}) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed++
	return nil
}

func (h *home) got(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.texts[key], "")
}

// inBubble makes a sink that delivers home, and runs f in a bubble, where
// time passes only when all wait. The arena is made outside.
func inBubble(t *testing.T, conf Config, f func(t *testing.T, s *running, h *home)) {
	t.Helper()
	arena := newArena(t, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		s := makeSink(t, conf, arena)
		h := newHome(t)
		s.Sink.run.to = h
		s.run()
		f(t, s, h)
	})
}

// keyed is the config of a sink with a batch for each host.
func keyed(t testing.TB, flush time.Duration, retry Backoff) Config {
	conf := fileConf(t, "/p/$host")
	conf.Memory, conf.Limits.Flush, conf.Retry = 1<<20, flush, retry
	return conf
}

// A batch goes out when its first message is old enough: no sooner, no later,
// and nothing happens while nothing comes.
func TestFlushAge(t *testing.T) {
	inBubble(t, keyed(t, time.Second, Backoff{}), func(t *testing.T, s *running, h *home) {
		e := s.Edge(0, nil)
		time.Sleep(time.Hour)
		put(t, e, fromHost("a", "1"))
		time.Sleep(600 * time.Millisecond)
		put(t, e, fromHost("a", "2"), fromHost("b", "3"))
		time.Sleep(399 * time.Millisecond)
		synctest.Wait()
		if h.got("/p/a") != "" {
			t.Error("a: before its time")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if h.got("/p/a") != "1\n2\n" || h.got("/p/b") != "" {
			t.Errorf("after a second: a %q, b %q", h.got("/p/a"), h.got("/p/b"))
		}
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if h.got("/p/b") != "3\n" {
			t.Errorf("b: %q", h.got("/p/b"))
		}
		st := s.finish()
		if st.Batches[buffer.ByAge] != 2 || st.Batches[buffer.ByShutdown] != 0 || h.closed != 1 {
			t.Errorf("batches %v, closed %d times", st.Batches, h.closed)
		}
	})
}

// A key that fails waits longer each time; its later batches wait behind it,
// and other keys do not. It is said once that it fails, and once that it is over.
func TestRetry(t *testing.T) {
	retry := Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	inBubble(t, keyed(t, never, retry), func(t *testing.T, s *running, h *home) {
		const tries = 8
		h.fail = func(b *buffer.Batch, try int) error {
			if b.Key == "/p/bad" && b.Sequence == 1 && try < tries {
				return fmt.Errorf("try %d: %w", try, errors.New("no room"))
			}
			return nil
		}
		e := s.Edge(0, nil)
		for i := range 5 {
			put(t, e, fromHost("bad", fmt.Sprint(i)))
			s.Flush()
		}
		put(t, e, fromHost("good", "x"))
		s.Flush()
		synctest.Wait()
		if h.got("/p/good") != "x\n" || h.got("/p/bad") != "" {
			t.Errorf("good %q, bad %q", h.got("/p/good"), h.got("/p/bad"))
		}
		if st := s.Status(); st.State != "failing" || !strings.Contains(st.LastError, "no room") || st.Buffered != 5 {
			t.Errorf("status %+v", st)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := h.got("/p/bad"); got != "0\n1\n2\n3\n4\n" {
			t.Errorf("bad %q", got)
		}
		// 2 tries at the start, then the waits of one lane.
		last := h.times[0]
		want := 100 * time.Millisecond
		for i, at := range h.times[2 : 2+tries-1] {
			if wait := at - last; wait < want/2 || wait > want {
				t.Errorf("wait %d: %v, want %v to %v", i, wait, want/2, want)
			}
			last, want = at, min(2*want, time.Second)
		}
		st := s.finish()
		if st.State != "ok" || st.Retries != tries-1 {
			t.Errorf("status %+v", st)
		}
		if s.log.count("") != 2 || s.log.count("cannot deliver") != 1 || s.log.count("delivering again") != 1 {
			t.Errorf("log:\n%s", s.log)
		}
	})
}

// Errors of another kind are said too, each once, and paths are counted.
func TestTroubleLog(t *testing.T) {
	log := new(logbook)
	logger := zerolog.New(log)
	var tr trouble
	for i := range 1000 {
		tr.note(logger, fmt.Sprint("/p/", i%10), fmt.Errorf("try %d: %w", i, errors.New("no room")), 5)
	}
	tr.note(logger, "/p/1", errors.New("not permitted"), 7)
	tr.end(logger)
	if log.count("cannot deliver") != 2 || log.count("") != 3 {
		t.Errorf("log:\n%s", log)
	}
	for range 3 { // too soon after it
		tr.note(logger, "/p/1", errors.New("no room"), 1)
		tr.end(logger)
	}
	if log.count("") != 3 {
		t.Errorf("log:\n%s", log)
	}
	tr.note(logger, "/p/1", errors.New("no room"), 1)
	tr.quietUntil = time.Now() // it lasts
	tr.note(logger, "/p/1", errors.New("no room"), 1)
	tr.end(logger)
	if log.count("") != 5 || !strings.Contains(log.String(), `"untold":3`) {
		t.Errorf("log:\n%s", log)
	}
	for _, want := range []string{`"tries":1001`, `"paths":10`, `"most_buffered":7`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
}

// Whatever fails when, each batch comes home once and in order.
func TestRetryKeepsOrder(t *testing.T) {
	retry := Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	inBubble(t, keyed(t, 10*time.Millisecond, retry), func(t *testing.T, s *running, h *home) {
		h.fail = func(b *buffer.Batch, try int) error {
			if (b.Sequence*7+uint64(len(b.Key)))%5 < 3 && try <= int(b.Sequence%4) {
				return errors.New("not now")
			}
			return nil
		}
		e := s.Edge(-1, nil)
		want := make(map[string]string)
		for i := range 2000 {
			host := strings.Repeat("h", 1+i*i%7)
			text := fmt.Sprint(i)
			put(t, e, fromHost(host, text))
			want["/p/"+host] += text + "\n"
			if i%13 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		s.Reopen()
		st := s.finish()
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if h.got(key) != want[key] {
				t.Errorf("%s: got %d bytes, want %d", key, len(h.got(key)), len(want[key]))
			}
		}
		if st.Retries == 0 || h.reopens != 1 {
			t.Errorf("retries %d, reopens %d", st.Retries, h.reopens)
		}
	})
}

// Once a batch of a lane came home, the next waits no longer than the first did.
func TestBackoffBeginsAnew(t *testing.T) {
	retry := Backoff{Min: time.Second, Max: time.Hour}
	inBubble(t, keyed(t, never, retry), func(t *testing.T, s *running, h *home) {
		h.fail = func(b *buffer.Batch, try int) error {
			if b.Sequence == 1 && try <= 6 || b.Sequence == 2 && try == 1 {
				return errors.New("no")
			}
			return nil
		}
		e := s.Edge(0, nil)
		for range 2 {
			put(t, e, fromHost("a", "m"))
			s.Flush()
		}
		time.Sleep(5 * time.Minute)
		s.finish()
		if wait := h.times[8] - h.times[7]; len(h.times) != 9 || wait > time.Second {
			t.Errorf("tries at %v", h.times)
		}
	})
}

// What is refused is lost and counted, and no more than a line a minute and
// one at the end tell of it.
func TestRefused(t *testing.T) {
	inBubble(t, keyed(t, never, Backoff{}), func(t *testing.T, s *running, h *home) {
		h.fail = func(b *buffer.Batch, _ int) error {
			if b.Key == "/p/bad" {
				return fmt.Errorf("wrapped: %w", &Refused{Reason: "too odd", Messages: 2, Err: errors.New("odd")})
			}
			return nil
		}
		e := s.Edge(0, nil)
		for range 9 {
			put(t, e, fromHost("bad", "1"), fromHost("bad", "2"), fromHost("bad", "3"), fromHost("good", "4"))
			s.Flush()
			time.Sleep(20 * time.Second)
		}
		st := s.finish()
		if st.Lost["too odd"] != 18 || st.Delivered != 18 || st.State != "ok" {
			t.Errorf("status %+v", st)
		}
		var told []string
		for line := range strings.Lines(s.log.String()) {
			_, rest, _ := strings.Cut(line, `"messages":`)
			told = append(told, rest[:1])
		}
		if !slices.Equal(told, []string{"2", "6", "6", "4"}) {
			t.Errorf("told of %q messages; log:\n%s", told, s.log)
		}
	})
}

// Close lets what waits be tried at once; giveUp ends the runner, after one
// more try.
func TestGiveUp(t *testing.T) {
	retry := Backoff{Min: time.Hour, Max: time.Hour}
	for _, works := range []bool{false, true} {
		inBubble(t, keyed(t, never, retry), func(t *testing.T, s *running, h *home) {
			h.fail = func(b *buffer.Batch, try int) error {
				if !works || try == 1 {
					return errors.New("no")
				}
				return nil
			}
			e := s.Edge(0, nil)
			put(t, e, fromHost("a", "1"), fromHost("a", "2"))
			s.Flush()
			synctest.Wait()
			s.Close()
			synctest.Wait()
			close(s.giveUp)
			left, want, tries := <-s.done, 2, 3
			if works {
				want, tries = 0, 2
			}
			if left != want || s.Status().Buffered != uint64(want) || h.closed != 1 || h.tries[1] != tries {
				t.Errorf("works %v: %d left, %+v, closed %d, tries %d", works, left, s.Status(), h.closed, h.tries[1])
			}
			checkBalance(t, s.Status())
		})
	}
}

// Set lets what waits be tried at once, and with the new times.
func TestSetRetries(t *testing.T) {
	conf := keyed(t, never, Backoff{Min: time.Hour, Max: time.Hour})
	inBubble(t, conf, func(t *testing.T, s *running, h *home) {
		h.fail = func(_ *buffer.Batch, try int) error {
			if try < 3 {
				return errors.New("no")
			}
			return nil
		}
		put(t, s.Edge(0, nil), fromHost("a", "1"))
		s.Flush()
		synctest.Wait()
		conf.Retry = Backoff{Min: time.Second, Max: time.Second}
		s.Set(conf)
		s.Set(conf)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if h.got("/p/a") != "1\n" {
			t.Error("not delivered; tries at ", h.times)
		}
		s.finish()
	})
}

func TestBackoff(t *testing.T) {
	b := Backoff{Min: 100, Max: 450}
	last := time.Duration(0)
	for _, want := range []time.Duration{100, 200, 400, 450, 450} {
		next, jittered := b.after(last)
		if next != want || jittered < next/2 || jittered > next {
			t.Errorf("after %d: %d, jittered %d; want %d", last, next, jittered, want)
		}
		last = next
	}
}
