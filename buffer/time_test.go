package buffer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// ended waits for the next sealed batch and ends it. It returns its text, its
// cause, and when that was.
func ended(t *testing.T, b *Buffer, start time.Time) (text string, cause Cause, at time.Duration) {
	t.Helper()
	for {
		if bt, _ := b.Next(); bt != nil {
			defer b.Done(bt, 0, "")
			return string(bt.Bytes()), bt.Cause, time.Since(start)
		}
		select {
		case <-b.Ready():
		case <-time.After(24 * time.Hour):
			t.Fatal("no batch ends in a day")
		}
	}
}

// step is a batch that ends.
type step struct {
	text  string
	cause Cause
	at    time.Duration
}

func TestAge(t *testing.T) {
	const ms = time.Millisecond
	// line is appended so long after the start, and was received late before
	// that.
	type line struct {
		at   time.Duration
		key  string
		text string
		late time.Duration
	}
	for _, tt := range []struct {
		name string
		in   []line
		want []step
	}{
		{
			"from the first message",
			[]line{{at: 300 * ms, text: "1"}, {at: 1200 * ms, text: "2"}, {at: 1400 * ms, text: "3"}},
			[]step{{"1\n2\n", ByAge, 1300 * ms}, {"3\n", ByAge, 2400 * ms}},
		},
		{
			"each key has its own",
			[]line{{at: 0, key: "a", text: "1"}, {at: 400 * ms, key: "b", text: "2"}, {at: 900 * ms, key: "a", text: "3"}},
			[]step{{"1\n3\n", ByAge, 1000 * ms}, {"2\n", ByAge, 1400 * ms}},
		},
		{
			"a full batch does not end the next one early",
			[]line{{at: 0, text: "1"}, {at: 100 * ms, text: "2"}, {at: 500 * ms, text: "3"}, {at: 600 * ms, text: "4"}, {at: 700 * ms, text: "5"}},
			[]step{{"1\n2\n3\n", ByMessages, 500 * ms}, {"4\n5\n", ByAge, 1600 * ms}},
		},
		{
			"nor another key's",
			[]line{{at: 0, key: "a", text: "1"}, {at: 100 * ms, key: "b", text: "x"}, {at: 200 * ms, key: "a", text: "2"}, {at: 300 * ms, key: "a", text: "3"}},
			[]step{{"1\n2\n3\n", ByMessages, 300 * ms}, {"x\n", ByAge, 1100 * ms}},
		},
		{
			"a message that had to wait is as old as it is",
			[]line{{at: 700 * ms, key: "a", text: "1"}, {at: 800 * ms, key: "b", text: "x", late: 500 * ms}},
			[]step{{"x\n", ByAge, 1300 * ms}, {"1\n", ByAge, 1700 * ms}},
		},
		{
			"one that waited longer than that goes at once",
			[]line{{at: 800 * ms, text: "1", late: 5 * time.Second}, {at: 900 * ms, text: "2"}},
			[]step{{"1\n", ByAge, 800 * ms}, {"2\n", ByAge, 1900 * ms}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBuffer(t, 8, Limits{3, 100, time.Second})
				start := time.Now()
				go func() {
					for _, l := range tt.in {
						time.Sleep(time.Until(start.Add(l.at)))
						b.Begin()
						b.Append([]byte(l.key), []byte(l.text), true, time.Now().Add(-l.late))
						b.End()
					}
				}()
				for _, want := range tt.want {
					var got step
					got.text, got.cause, got.at = ended(t, b, start)
					if got != want {
						t.Errorf("got %q by %v at %v, want %q by %v at %v", got.text, got.cause, got.at, want.text, want.cause, want.at)
					}
				}
			})
		})
	}
}

// An idle buffer has no timer armed, whatever ended its last batch. (A case
// of FI22's kind: what is idle costs nothing.)
func TestIdle(t *testing.T) {
	for name, end := range map[string]func(*Buffer){
		"never used": nil,
		"age":        func(*Buffer) { time.Sleep(time.Second); synctest.Wait() },
		"messages":   func(b *Buffer) { add(b, "", "2"); add(b, "", "3") },
		"bytes":      func(b *Buffer) { add(b, "", string(make([]byte, 200))) },
		"reopen":     func(b *Buffer) { b.Mark() },
		"shutdown":   func(b *Buffer) { b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBuffer(t, 8, Limits{3, 100, time.Second})
				if end == nil {
					if b.timer != nil {
						t.Error("a timer before the first message")
					}
					return
				}
				mustAdd(t, b, "", "1")
				end(b)
				if len(sealed(b)) == 0 {
					t.Fatal("nothing has ended")
				}
				if b.timer.Stop() {
					t.Error("nothing is open, and the timer is armed")
				}
			})
		})
	}
}

// A shorter flush holds for the very next batch.
func TestShorterFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, 8, Limits{3, 100, time.Hour})
		start := time.Now()
		mustAdd(t, b, "", "1")
		b.Begin()
		b.SetSpec(Limits{3, 100, time.Second}, nil)
		b.End()
		mustAdd(t, b, "", "2")
		if text, cause, at := ended(t, b, start); text != "1\n" || cause != ByReopen || at != 0 {
			t.Errorf("%q by %v at %v", text, cause, at)
		}
		if text, cause, at := ended(t, b, start); text != "2\n" || cause != ByAge || at != time.Second {
			t.Errorf("%q by %v at %v", text, cause, at)
		}
	})
}

// The oldest message is the oldest that is not done, whoever holds it.
func TestOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, 8, Limits{1, 100, time.Hour})
		start := time.Now()
		for _, key := range []string{"a", "b", "c"} {
			mustAdd(t, b, key, "text")
			time.Sleep(time.Second)
		}
		b.Begin()
		b.Append([]byte("d"), []byte("late"), true, start.Add(500*time.Millisecond))
		b.End()
		batches := sealed(b)
		var got []time.Duration
		for _, i := range []int{1, 0, 3, 2} { // a batch that fails is overtaken
			got = append(got, b.Stats().Oldest.Sub(start))
			b.Done(batches[i], 0, "")
		}
		const ms = time.Millisecond
		if want := []time.Duration{0, 0, 500 * ms, 2000 * ms}; !slices.Equal(got, want) {
			t.Errorf("oldest after %v, want %v", got, want)
		}
		if oldest := b.Stats().Oldest; !oldest.IsZero() {
			t.Errorf("nothing left, and the oldest is of %v", oldest)
		}
	})
}
