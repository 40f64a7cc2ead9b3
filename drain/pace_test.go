package drain

import (
	"testing"
	"time"
)

// step is one drain and what the pace must answer.
type step struct {
	units   int
	elapsed time.Duration
	sleep   time.Duration
	park    bool
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	udp := Pace{Target: 512, MaxInterval: 20 * ms}
	tests := []struct {
		name  string
		pace  Pace
		room  int
		steps []step
	}{
		{"parked from the start", udp, 6000, []step{{park: true}, {park: true}}},
		{"smallest first, then doubles up to the cap", udp, 6000, []step{
			{1, 5000 * ms, ms, false}, // the time asleep in the poller is no rate
			{1, ms, 2 * ms, false},
			{2, 2 * ms, 4 * ms, false},
			{4, 4 * ms, 8 * ms, false},
			{8, 8 * ms, 16 * ms, false},
			{16, 16 * ms, 20 * ms, false},
			{20, 20 * ms, 20 * ms, false},
		}},
		{"three empty drains park", udp, 6000, []step{
			{1, ms, ms, false},
			{0, ms, 2 * ms, false},
			{0, 2 * ms, 4 * ms, false},
			{0, 4 * ms, 0, true},
			{0, time.Hour, 0, true},
			{1, time.Hour, ms, false},
		}},
		{"an arrival starts the count anew", udp, 6000, []step{
			{1, ms, ms, false},
			{0, ms, 2 * ms, false},
			{0, 2 * ms, 4 * ms, false},
			{1, 4 * ms, 8 * ms, false},
			{0, 8 * ms, 16 * ms, false},
		}},
		{"gathers the target", udp, 6000, []step{
			{100, ms, ms, false},
			{100, ms, 2 * ms, false},
			{200, 2 * ms, 4 * ms, false},
			{400, 4 * ms, 512 * time.Second / 100_000, false},
		}},
		{"half of the room", udp, 400, []step{
			{100, ms, ms, false},
			{100, ms, 2 * ms, false},
			{200, 2 * ms, 2 * ms, false},
		}},
		{"less where it is woken late", udp, 400, []step{
			{100, ms, ms, false},
			{200, 2 * ms, 2 * ms, false},          // late by 1 ms; half is 2 ms
			{350, 7 * ms / 2, 3 * ms / 2, false},  // by 1.5 ms
			{550, 11 * ms / 2, shortSleep, false}, // by 4 ms
		}},
		{"the larger of last and smoothed", udp, 400, []step{
			{50, ms, ms, false},
			{50, ms, 2 * ms, false},      // smoothed 25/ms, last 50/ms
			{200, 2 * ms, 2 * ms, false}, // last 100/ms
			{0, 2 * ms, 4 * ms, false},   // smoothed 31/ms
		}},
		{"a queue too short for a millisecond", udp, 80, []step{
			{10, ms, ms, false},
			{50, ms, 800 * time.Microsecond, false},
			{40, 800 * time.Microsecond, 800 * time.Microsecond, false},
		}},
		{"too fast to sleep, then slow again", udp, 200, []step{
			{50, ms, ms, false},
			{500, ms, 0, false},
			{1, ms / 4, 0, false}, // the window is not over
			{250, ms / 4, 0, false},
			{0, ms / 2, 100 * ms / 188, false}, // no drain without a sleep counts as empty
			{0, 100 * ms / 188, 100 * ms / 94, false},
			{0, 100 * ms / 94, 100 * ms / 47, false},
			{0, 100 * ms / 47, 0, true},
		}},
		{"woken into a full queue", udp, 400, []step{
			{101, time.Second, 0, false},
			{0, ms, ms, false},
		}},
		{"woken into a full queue, and no more comes", udp, 400, []step{
			{101, time.Second, 0, false},
			{1, ms / 100, 0, false},
			{0, ms / 1000, 0, false}, {0, ms / 1000, 0, false}, {0, ms / 1000, 0, false}, {0, ms / 1000, 0, false},
			{0, ms / 1000, 0, false}, {0, ms / 1000, 0, false}, {0, ms / 1000, 0, false},
			{0, ms / 1000, ms, false},
		}},
		{"room for a burst", Pace{Target: 512, MaxInterval: 20 * ms, Burst: 300_000}, 1200, []step{
			{1, ms, ms, false},
			{1, ms, 2 * ms, false},
			{1, 2 * ms, 4 * ms, false},
			{1, 4 * ms, 4 * ms, false},
		}},
		{"no room for a burst of a millisecond", Pace{Target: 512, MaxInterval: 20 * ms, Burst: 300_000}, 12, []step{
			{1, ms, ms, false},
			{1, ms, ms, false},
		}},
		{"a cap below what can be slept", Pace{Target: 512, MaxInterval: ms / 4}, 6000, []step{
			{1, ms, ms, false},
			{1, ms, ms, false},
			{0, ms, ms, false},
			{0, ms, ms, false},
			{0, ms, 0, true},
		}},
		{"next to no room", udp, 0, []step{
			{1, ms, 0, false},
			{0, ms, ms, false},
			{0, ms, 2 * ms, false},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pace := test.pace
			for i, s := range test.steps {
				sleep, park := pace.Next(s.units, s.elapsed, test.room)
				if d := sleep - s.sleep; d < -time.Microsecond || d > time.Microsecond || park != s.park {
					t.Fatalf("step %d: sleep %v park %v, want %v %v", i, sleep, park, s.sleep, s.park)
				}
			}
		})
	}
}

// TestPaceSteady holds the promise of the doc comment at any steady rate: never
// more than half of the room, and the target where the cap allows it.
func TestPaceSteady(t *testing.T) {
	for _, room := range []int{166, 400, 6000, 100_000} {
		for rate := 100; rate <= 1_000_000; rate *= 3 { // a second
			pace := Pace{Target: 512, MaxInterval: 20 * time.Millisecond}
			units, elapsed := 1, time.Duration(0)
			var sleep time.Duration
			for i := range 50 {
				var park bool
				sleep, park = pace.Next(units, elapsed, room)
				if park {
					t.Fatalf("room %d rate %d: parked", room, rate)
				}
				elapsed = max(sleep, 20*time.Microsecond) // a drain without a sleep takes a moment too
				units = int(float64(rate) * elapsed.Seconds())
				if units == 0 && sleep > 0 {
					units = 1
				}
				if i > 0 && sleep > 0 && units > room/2+1 { // the first sleep knows no rate
					t.Fatalf("room %d rate %d: %d units after a sleep of %v", room, rate, units, sleep)
				}
			}
			want := min(20*time.Millisecond, time.Duration(min(512, room/2))*time.Second/time.Duration(rate))
			if want >= 2*shortSleep && (sleep < want*9/10 || sleep > want*11/10) {
				t.Errorf("room %d rate %d: sleeps %v, want %v", room, rate, sleep, want)
			}
		}
	}
}

// TestPaceForgetsLateness: one late wake-up shortens the sleeps of a second at
// most.
func TestPaceForgetsLateness(t *testing.T) {
	const room, rate = 400, 100 // units a millisecond
	pace := Pace{Target: 512, MaxInterval: 20 * time.Millisecond}
	sleep, _ := pace.Next(1, 0, room)
	for range 4 {
		sleep, _ = pace.Next(int(rate*sleep/time.Millisecond), sleep, room)
	}
	const half = room / 2 * time.Millisecond / rate
	if sleep != half {
		t.Fatalf("sleeps %v, want %v", sleep, half)
	}
	late := sleep + 10*time.Millisecond
	sleep, _ = pace.Next(int(rate*late/time.Millisecond), late, room)
	if sleep != shortSleep {
		t.Errorf("sleeps %v after a wake-up late by 10 ms, want %v", sleep, shortSleep)
	}
	var took time.Duration
	for ; sleep < half*99/100 && took < time.Minute; took += sleep {
		sleep, _ = pace.Next(int(rate*sleep/time.Millisecond), sleep, room)
	}
	if took < 10*time.Millisecond || took > time.Second {
		t.Errorf("slept less for %v, want up to a second", took)
	}
}

// TestPaceFollowsTheRate drives a pace with a source of a steady rate.
func TestPaceFollowsTheRate(t *testing.T) {
	tests := []struct {
		name   string
		rate   float64 // units a second
		room   int
		target int
		want   time.Duration
	}{
		{"the cap", 1_000, 60_000, 512, 20 * time.Millisecond},
		{"the target", 100_000, 60_000, 512, 5120 * time.Microsecond},
		{"half of the room", 600_000, 6_000, 100_000, 5 * time.Millisecond},
	}
	for _, test := range tests {
		p := Pace{Target: test.target, MaxInterval: 20 * time.Millisecond}
		now, last, taken, drains := time.Duration(0), time.Duration(0), 0, 0
		for ; now < 10*time.Second; drains++ {
			all := 1 + int(now.Seconds()*test.rate)
			sleep, park := p.Next(all-taken, now-last, test.room)
			if park {
				t.Fatalf("%s: parked after %v", test.name, now)
			}
			taken, last = all, now
			now += max(sleep, time.Microsecond)
		}
		if want := int(10 * time.Second / test.want); drains < want*95/100 || drains > want*105/100 {
			t.Errorf("%s: %d drains in 10 s, want about %d", test.name, drains, want)
		}
	}
}
