package sink

import (
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait between tries: twice as long each time, between
// Min and Max.
type Backoff struct{ Min, Max time.Duration }

// after returns the wait that follows the given one, and a random time
// between half of it and all of it, so that many clients of one server do
// not come back at once.
func (b Backoff) after(last time.Duration) (next, jittered time.Duration) {
	next = max(b.Min, min(2*last, b.Max))
	return next, next/2 + rand.N(next/2+1)
}
