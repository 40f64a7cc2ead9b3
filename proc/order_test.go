package proc

import (
	"context"
	"strings"
	"testing"
	"time"
)

// within is a context for orders that must be carried out.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Orders are waited for, and each says what came of it.
func TestOrderWait(t *testing.T) {
	ctx := within(t, patience)
	cfg := config("trap 'sleep 0.1; exit' TERM; echo up; while :; do sleep 0.01; done")
	cfg.Autostart = false
	cfg.StartWait = 100 * time.Millisecond
	r := launch(t, cfg)
	if err := r.Stop().Wait(ctx); err != ErrNotRunning {
		t.Errorf("stop of what does not run: %v", err)
	}
	first, again := r.Start(), r.Start() // the second finds it starting, or not even that
	for _, o := range []*Order{first, again} {
		if err := o.Wait(ctx); err != nil || r.Status().State != Running {
			t.Errorf("start: %v, %v", err, r.Status())
		}
	}
	if err := r.Start().Wait(ctx); err != ErrRunning {
		t.Errorf("start of what runs: %v", err)
	}
	before := r.running(t)
	if err := r.Restart().Wait(ctx); err != nil || r.Status().State != Running || r.Status().PID == before {
		t.Errorf("restart: %v, %v", err, r.Status())
	}
	if err := r.Stop().Wait(ctx); err != nil || r.Status().State != Stopped {
		t.Errorf("stop: %v, %v", err, r.Status())
	}
	short := within(t, 10*time.Millisecond)
	if err := r.Start().Wait(short); err != context.DeadlineExceeded {
		t.Errorf("an impatient start: %v", err)
	}
	r.reaches(t, Running) // the order stands
	order := r.Restart()
	r.halted(t)
	if err := order.Wait(ctx); err != errEnded && err != errStopped {
		t.Errorf("an order at the end of it all: %v", err)
	}
	if err := r.Stop().Wait(ctx); err != errEnded && err != nil {
		t.Errorf("an order after the end: %v", err)
	}
}

// A start that fails is told at once, though it is tried again; the next one
// does not wait for the delay.
func TestOrderStartFails(t *testing.T) {
	cfg := config("exit 3")
	cfg.Autostart = false
	cfg.StartWait = time.Minute
	cfg.StartRetries = -1
	cfg.Backoff = Backoff{Min: time.Hour, Max: time.Hour, Reset: time.Hour}
	r := launch(t, cfg)
	for range 2 {
		err := r.Start().Wait(within(t, patience))
		if err == nil || err.Error() != "BACKOFF: exit status 3" {
			t.Errorf("error %v", err)
		}
	}
	if s := r.Status(); s.Restarts != 1 {
		t.Errorf("status %+v", s)
	}
	order := r.Start()
	if err := r.Stop().Wait(within(t, patience)); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := order.Wait(within(t, patience)); err == nil || !strings.Contains(err.Error(), "exit status 3") && err != errStopped {
		t.Errorf("a start that was overtaken by a stop: %v", err)
	}
}

// An order that comes at any moment of a crash loop is carried out.
func TestOrderStopCrashLoop(t *testing.T) {
	cfg := config("exit 1")
	cfg.StartRetries = -1
	cfg.StartWait = time.Minute
	cfg.Backoff = Backoff{Min: time.Millisecond, Max: time.Millisecond, Reset: time.Hour}
	r := launch(t, cfg)
	for range 100 {
		before := r.Status().Restarts
		eventually(t, "another crash", func() bool { return r.Status().Restarts > before })
		if err := r.Stop().Wait(within(t, patience)); err != nil {
			t.Fatalf("stop: %v, %+v", err, r.Status())
		}
		if s := r.Status().State; s != Stopped {
			t.Fatalf("state %v", s)
		}
		r.Start()
	}
}

// Whoever waits for an order gets an answer when the next one undoes it, at
// whatever moment that comes.
func TestOrderUndone(t *testing.T) {
	ctx := within(t, patience)
	cfg := config("exec sleep 300")
	r := launch(t, cfg)
	for range 50 {
		before := r.running(t)
		stop, start := r.Stop(), r.Start()
		if err := start.Wait(ctx); err != nil {
			t.Fatalf("start: %v, %+v", err, r.Status())
		}
		if err := stop.Wait(ctx); err != nil {
			t.Fatalf("stop: %v, %+v", err, r.Status())
		}
		if pid := r.running(t); pid == before {
			t.Fatal("it was not stopped")
		}
	}
	r.halted(t)
	cfg.StartWait = 100 * time.Millisecond
	r = launch(t, cfg)
	for range 5 {
		first := r.Restart()
		eventually(t, "another start", func() bool { return r.Status().State == Starting && r.Status().PID != 0 })
		second := r.Restart()
		for _, o := range []*Order{first, second} {
			if err := o.Wait(ctx); err != nil {
				t.Fatalf("restart: %v, %+v", err, r.Status())
			}
		}
	}
	cfg = config("exit 1")
	cfg.StartWait = time.Minute
	r = launch(t, cfg)
	for range 50 {
		r.reaches(t, Fatal)
		start, stop := r.Start(), r.Stop()
		if err := stop.Wait(ctx); err != nil {
			t.Fatalf("stop: %v, %+v", err, r.Status())
		}
		if err := start.Wait(ctx); err == nil || err == ctx.Err() {
			t.Fatalf("start: %v, %+v", err, r.Status())
		}
		r.Start()
	}
}

func TestCommand(t *testing.T) {
	cfg := config("")
	cfg.Environment = []string{"A=b"}
	cfg.Directory = "/"
	r := launch(t, cfg)
	ctx := within(t, patience)
	for _, tt := range []struct{ script, out, err string }{
		{"echo $A; pwd >&2", "b\n/\n", ""},
		{"echo no; exit 4", "no\n", "exit status 4"},
		{"sleep 300 & echo left; exit 0", "left\n", ""}, // 2 s
		{"head -c 1000000 /dev/zero | tr '\\0' x; exit 5", strings.Repeat("x", maxOutput), "exit status 5"},
	} {
		out, err := r.Command(ctx, []string{"sh", "-c", tt.script})
		if string(out) != tt.out || err == nil && tt.err != "" || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %.100q, %v", tt.script, out, err)
		}
	}
	if _, err := r.Command(ctx, []string{"no-such-command"}); err == nil {
		t.Error("what is not there was run")
	}
	begin := time.Now()
	out, err := r.Command(within(t, 50*time.Millisecond), []string{"sh", "-c", "echo begun; sleep 300 & wait"})
	if err == nil || !strings.Contains(err.Error(), "deadline exceeded") || time.Since(begin) > 10*time.Second {
		t.Errorf("%q, %v after %v", out, err, time.Since(begin))
	}
}
