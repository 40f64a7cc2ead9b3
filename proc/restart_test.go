package proc

import (
	"testing"
	"time"
)

const sec = time.Second

func TestRestarts(t *testing.T) {
	type step struct {
		end   ending
		state State
		low   time.Duration // of the delay
		high  time.Duration
	}
	quick := ending{code: 1, ran: sec / 2}
	crash := ending{up: true, code: 1, ran: 5 * sec}
	healthy := ending{up: true, code: 1, ran: 60 * sec}
	expected := ending{up: true, code: 0, ran: 5 * sec}
	signal := ending{up: true, code: -1, ran: 5 * sec}
	tests := []struct {
		name    string
		rule    Restart
		retries int
		steps   []step
	}{
		{"startretries, then FATAL", Unexpected, 3, []step{
			{quick, Backingoff, sec, sec}, {quick, Backingoff, sec, 2 * sec}, {quick, Backingoff, 2 * sec, 4 * sec}, {quick, Fatal, 0, 0},
		}},
		{"an exit before startsecs is a failure, whatever the code", Always, 0, []step{
			{ending{code: 0, ran: sec / 2}, Fatal, 0, 0},
		}},
		{"a start that lasts forgives quick failures", Unexpected, 1, []step{
			{quick, Backingoff, sec, sec}, {crash, Backingoff, sec, sec}, {quick, Backingoff, 2 * sec, 4 * sec}, {quick, Fatal, 0, 0},
		}},
		{"for ever", Never, -1, []step{
			{quick, Backingoff, sec, sec}, {quick, Backingoff, sec, 2 * sec}, {quick, Backingoff, 2 * sec, 4 * sec},
			{quick, Backingoff, 4 * sec, 8 * sec}, {quick, Backingoff, 5 * sec, 10 * sec}, {quick, Backingoff, 5 * sec, 10 * sec},
		}},
		{"the first crash is followed by a start at once", Unexpected, 3, []step{
			{crash, Backingoff, 0, 0}, {crash, Backingoff, sec, sec}, {crash, Backingoff, sec, 2 * sec}, {signal, Backingoff, 2 * sec, 4 * sec},
			{healthy, Backingoff, 0, 0}, {crash, Backingoff, sec, sec},
		}},
		{"expected exits are not slowed down", Always, 3, []step{
			{expected, Backingoff, 0, 0}, {expected, Backingoff, 0, 0}, {crash, Backingoff, sec, sec}, {expected, Backingoff, 0, 0},
		}},
		{"but they cannot spin", Always, 3, []step{
			{ending{up: true, ran: sec / 10}, Backingoff, sec, sec}, {ending{up: true, ran: sec / 10}, Backingoff, sec, sec},
			{ending{up: true, ran: sec / 10}, Backingoff, sec, 2 * sec},
		}},
		{"an expected exit ends it", Unexpected, 3, []step{{expected, Exited, 0, 0}}},
		{"an unexpected exit ends it too", Never, 3, []step{{crash, Exited, 0, 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := restarts{rule: tt.rule, codes: []int{0}, retries: tt.retries, backoff: Backoff{sec, 10 * sec, 60 * sec}}
			for i, s := range tt.steps {
				state, delay := r.after(s.end)
				if state != s.state || delay < s.low || delay > s.high {
					t.Errorf("step %d: %v after %v, want %v after %v to %v", i, state, delay, s.state, s.low, s.high)
				}
			}
		})
	}
}

// Programs that fell together must not rise together.
func TestRestartsJitter(t *testing.T) {
	r := restarts{backoff: Backoff{sec, 60 * sec, 60 * sec}}
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[r.delay(10)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d delays of 100 are different", len(seen))
	}
}
