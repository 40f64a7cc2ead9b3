package drain

import (
	"os"
	"testing"
	"time"
)

func newTestAlarm(t *testing.T, stop <-chan struct{}) *alarm {
	a, err := newAlarm(stop)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestAlarmSleeps(t *testing.T) {
	a := newTestAlarm(t, nil)
	for _, d := range []time.Duration{1, time.Microsecond, 3 * time.Millisecond, time.Millisecond, 20 * time.Millisecond} {
		begin := time.Now()
		a.sleep(d)
		if slept := time.Since(begin); slept < d {
			t.Errorf("slept %v, want at least %v", slept, d)
		}
	}
}

// TestAlarmIsHeard: however soon it rings, no sleep goes on for ever.
func TestAlarmIsHeard(t *testing.T) {
	a := newTestAlarm(t, nil)
	for i := range 20_000 {
		a.sleep(time.Duration(1 + i%100))
	}
}

// TestAlarmStops: a sleep of an hour ends with stop, and so does the next.
func TestAlarmStops(t *testing.T) {
	stop, asleep := make(chan struct{}), make(chan struct{})
	a := newTestAlarm(t, stop)
	go func() {
		<-asleep
		close(stop)
	}()
	close(asleep)
	a.sleep(time.Hour)
	a.sleep(time.Hour)
}

func TestAlarmLeavesNothing(t *testing.T) {
	newTestAlarm(t, nil).sleep(1) // Go's own poller is open from here on
	before := descriptors(t)
	for range 10 {
		a, err := newAlarm(nil)
		if err != nil {
			t.Fatal(err)
		}
		a.sleep(1)
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, want %d", after, before)
	}
}

// descriptors counts those that this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
