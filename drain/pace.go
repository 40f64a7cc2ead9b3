package drain

import "time"

// MinSleep is the shortest sleep between two drains where the queue has room
// for it.
const MinSleep = time.Millisecond

// shortSleep is the shortest of all, for a queue that would be over half full
// after MinSleep: going to sleep and waking up for less costs more than it saves.
const shortSleep = MinSleep / 4

// maxEmpty is how many drains in a row may find nothing before a loop parks.
const maxEmpty = 3

// window is the shortest time over which a rate is measured. Drains without a
// sleep between them are microseconds apart: one message among them would look
// like a flood. But it ends early after maxQuiet of them that found nothing.
const (
	window   = MinSleep / 2
	maxQuiet = 8
)

// Pace decides how long a loop sleeps before its next drain: interrupt
// moderation in user space. It follows the rate at which units (datagrams, or
// bytes) arrive, so that about Target of them are gathered, and the kernel's
// queue is at most about half full, at the next wake-up; and at most three
// quarters full if that comes as late as the latest of late, as far as sleeps
// of shortSleep can do that. It reads no clock and makes no call. The zero
// value with a Target and a MaxInterval is ready, and parked.
type Pace struct {
	Target      int           // units wanted per wake-up
	MaxInterval time.Duration // the longest sleep; at least MinSleep is taken
	Burst       int           // units a second that a sudden burst may bring: the queue must hold it for one sleep; 0: any

	rate     float64       // units per nanosecond, smoothed
	interval time.Duration // what was slept last; 0 after drains without a sleep
	late     time.Duration // how long after that a drain ended, at most; it fades
	units    int           // drained in the current window
	elapsed  time.Duration // of the current window
	empty    int           // drains in a row that found nothing after a sleep
	quiet    int           // and without one
	flowing  bool          // not parked: the time since the last drain says something
}

// Next takes what the last drain brought, the time since the drain before it,
// and what the queue holds in all. It returns how long to sleep before the
// next drain, 0 to drain again at once; or that the loop shall park until
// something arrives.
func (p *Pace) Next(units int, elapsed time.Duration, room int) (sleep time.Duration, park bool) {
	if !p.flowing {
		return p.resume(units, room)
	}
	switch {
	case units > 0:
		p.empty, p.quiet = 0, 0
	case p.interval > 0:
		p.empty++
	default:
		p.quiet++
	}
	if p.empty >= maxEmpty {
		*p = Pace{Target: p.Target, MaxInterval: p.MaxInterval, Burst: p.Burst}
		return 0, true
	}
	if p.interval > 0 {
		p.late = max(elapsed-p.interval, p.late-p.late/64)
	}
	p.units += units
	p.elapsed += elapsed
	if p.elapsed < window && p.quiet < maxQuiet {
		return p.interval, false
	}
	last := float64(p.units) / float64(max(1, p.elapsed))
	p.units, p.elapsed, p.quiet = 0, 0, 0
	p.rate += (last - p.rate) / 2
	p.interval = p.limit(max(p.rate, last), room)
	return p.interval, false
}

// resume is the first decision after a park. The rate is unknown, so the sleep
// is the shortest; none at all where the queue is already filling.
func (p *Pace) resume(units, room int) (time.Duration, bool) {
	if units == 0 {
		return 0, true
	}
	p.flowing = true
	p.interval = MinSleep
	if units > room/4 {
		p.interval = 0
	}
	return p.interval, false
}

// limit is the interval for a rate. It may be twice the last one at most: a
// pause in a stream must not be taken for its end.
func (p *Pace) limit(rate float64, room int) time.Duration {
	longest := max(MinSleep, min(p.MaxInterval, 2*p.interval))
	if p.Burst > 0 {
		hold := time.Duration(float64(room) / float64(p.Burst) * float64(time.Second))
		longest = min(longest, max(MinSleep, hold))
	}
	half := fill(max(1, room/2), rate)
	if half < shortSleep {
		return 0
	}
	prompt := max(shortSleep, half+half/2-p.late)
	return min(longest, half, prompt, max(shortSleep, fill(p.Target, rate)))
}

// fill is how long it takes a rate to bring so many units; an hour at most.
func fill(units int, rate float64) time.Duration {
	return time.Duration(min(float64(units)/rate, float64(time.Hour)))
}
