package sink

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestForwardGiveUp(t *testing.T) {
	w := newTimber(t)
	t.Run("before", func(t *testing.T) {
		s := newServer(t)
		f := startForwarder(t, testForward(s.Target))
		giveUp := make(chan struct{})
		close(giveUp)
		if err := f.Deliver(w.batch(Lines, "m"), giveUp); !errors.Is(err, errGivenUp) {
			t.Errorf("error %v", err)
		}
		if accepted, _ := s.connections(); accepted != 0 {
			t.Error("connected in spite of it")
		}
	})
	t.Run("while writing", func(t *testing.T) {
		s := newServer(t)
		s.stop(1)
		f := startForwarder(t, testForward(s.Target))
		giveUp := make(chan struct{})
		time.AfterFunc(100*time.Millisecond, func() { close(giveUp) })
		start := time.Now()
		err := f.Deliver(w.batch(Lines, numbered("big", 8000, 1000)...), giveUp)
		if took := time.Since(start); err == nil || took > 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
	t.Run("while looking up", func(t *testing.T) {
		names := newNameServer(t)
		names.silent.Store(true)
		f := startForwarder(t, testForward(Target{"tcp", "logs.test.:514"}))
		f.resolver = names.resolver()
		giveUp := make(chan struct{})
		time.AfterFunc(100*time.Millisecond, func() { close(giveUp) })
		start := time.Now()
		err := f.Deliver(w.batch(Lines, "m"), giveUp)
		if took := time.Since(start); !errors.Is(err, errGivenUp) || took > 3*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestForwardFailover(t *testing.T) {
	a, b, w := newServer(t), newServer(t), newTimber(t)
	var logged bytes.Buffer
	f := startForwarder(t, testForward(a.Target, b.Target))
	f.log = zerolog.New(&logged)
	a.kill(false)
	mustDeliver(t, f, w.batch(Lines, "m1"))
	b.awaits(1)
	a.up()
	mustDeliver(t, f, w.batch(Lines, "m2"))
	mustEqual(t, b.awaits(2), []string{"m1", "m2"})

	// The time has come to look for a better one.
	f.conf.ResolveEvery = 0
	mustDeliver(t, f, w.batch(Lines, "m3"))
	mustEqual(t, a.awaits(1), []string{"m3"})
	within(t, "the other connection ends", func() bool { _, ended := b.connections(); return ended == 1 })
	mustDeliver(t, f, w.batch(Lines, "m4"))
	mustEqual(t, a.awaits(2), []string{"m3", "m4"})
	if accepted, _ := a.connections(); accepted != 1 {
		t.Errorf("%d connections to the preferred one, want 1", accepted)
	}
	if n := f.counters.resent.Load(); n != 0 {
		t.Errorf("%d messages resent after a clean close", n)
	}
	lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], b.Target.String()) || !strings.Contains(lines[1], a.Target.String()) {
		t.Errorf("logged %q, want a line for each change", lines)
	}
}

func TestForwardReconnectionLog(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	var logged bytes.Buffer
	f := startForwarder(t, testForward(s.Target))
	f.log = zerolog.New(&logged)
	for range 5 {
		mustDeliver(t, f, w.batch(Lines, "m"))
		s.kill(true)
		s.up()
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 1 || !strings.Contains(logged.String(), `"resent":1`) {
		t.Errorf("%d lines, want 1:\n%s", lines, logged.String())
	}
}

func TestForwardSet(t *testing.T) {
	a, b, w := newServer(t), newServer(t), newTimber(t)
	f := startForwarder(t, testForward(a.Target))
	for i := range 10 {
		target := a.Target
		if i >= 5 {
			target = b.Target
		}
		conf := testForward(target)
		conf.WriteTimeout += time.Duration(i)
		f.set(conf)
		mustDeliver(t, f, w.batch(Octets, fmt.Sprint("<13>m", i)))
	}
	mustEqual(t, a.awaits(5), []string{"<13>m0", "<13>m1", "<13>m2", "<13>m3", "<13>m4"})
	mustEqual(t, b.awaits(5), []string{"<13>m5", "<13>m6", "<13>m7", "<13>m8", "<13>m9"})
	for _, s := range []*server{a, b} {
		if accepted, _ := s.connections(); accepted != 1 {
			t.Errorf("%d connections to one server", accepted)
		}
	}
}

// A smaller window forgets what does not fit, whatever became of it.
func TestForwardSetWindow(t *testing.T) {
	s, w := newServer(t), newTimber(t)
	f := startForwarder(t, testForward(s.Target))
	mustDeliver(t, f, w.batch(Lines, "m0", "m1"))
	s.awaits(2)
	s.kill(true)
	conf := testForward(s.Target)
	conf.ResendWindow = len("m1\n")
	f.set(conf)
	s.up()
	mustDeliver(t, f, w.batch(Lines, "m2"))
	mustEqual(t, s.awaits(4), []string{"m0", "m1", "m1", "m2"})
}
