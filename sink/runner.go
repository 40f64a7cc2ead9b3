package sink

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
)

// Deliverer brings batches to where they belong. Its methods are called by
// the runner's goroutine only.
type Deliverer interface {
	// Deliver brings one batch home, whole. On an error nothing of it counts
	// as delivered and it is tried again, unless the error is a *Refused.
	// A wait ends early when giveUp is closed.
	Deliver(b *buffer.Batch, giveUp <-chan struct{}) error
	// Reopen looks every file up by its name again.
	Reopen()
	// Close ends what was opened, after the last batch.
	Close(giveUp <-chan struct{}) error
}

// preparer is a Deliverer that can do the greater part of its work on a batch
// before the turn of that, on another core.
type preparer interface {
	// Prepare begins with a batch that waits behind others. Deliver takes what
	// has come of it, once.
	Prepare(b *buffer.Batch)
	// Forget ends it.
	Forget(b *buffer.Batch)
}

// ticker is a Deliverer that has something to do at a time.
type ticker interface {
	Due() time.Time // zero: never
	Tick()          // does what is due
}

// Refused is the error for messages that can never be delivered.
type Refused struct {
	Reason   string // of the loss, as counted
	Messages int    // how many of the batch; the others are delivered
	Err      error
}

func (r *Refused) Error() string { return fmt.Sprintf("%s: %v", r.Reason, r.Err) }

func (r *Refused) Unwrap() error { return r.Err }

// runner delivers the sealed batches of one sink. Batches of one key stay in
// order: while the first is being retried, the others queue behind it in its
// lane, and other keys go on.
type runner struct {
	counters
	health
	buf      *buffer.Buffer
	to       Deliverer
	waiting  []*buffer.Batch // out of buf, and prepared where that can be done
	log      zerolog.Logger
	retry    Backoff
	lanes    map[string]*lane // only of keys that fail
	next     time.Time        // of the first retry of any lane; zero: none
	trouble  trouble
	reset    chan func()   // changes to make from the runner's goroutine
	refusals chan struct{} // has an element after messages were refused
	onWrite  func(time.Duration)
	lost     lossLog
}

// lane is a key whose first batch could not be delivered.
type lane struct {
	batches []*buffer.Batch
	delay   time.Duration
	next    time.Time // of the next try
}

// trouble is the time from the first failure to when all lanes are empty
// again. It is logged when it begins and ends, and when another error shows
// up, however many batches and paths it holds up. One that begins within a
// minute of the last is told of only if it lasts: on a disk at its brim each
// batch has its own.
type trouble struct {
	since time.Time // zero: there is none
	said  bool
	kinds map[string]bool
	paths map[string]bool
	tries int
	most  uint64 // messages that were in memory at once

	quietUntil time.Time
	untold     int // troubles before this one that were not told of
}

func newRunner(buf *buffer.Buffer, retry Backoff, log zerolog.Logger) *runner {
	return &runner{
		buf: buf, retry: retry, log: log,
		lanes: make(map[string]*lane), reset: make(chan func(), 1), refusals: make(chan struct{}, 1),
		onWrite: func(time.Duration) {},
	}
}

// loop delivers until the buffer is closed and nothing is left, or giveUp is
// closed. It returns how many messages are left.
func (r *runner) loop(giveUp <-chan struct{}) (undelivered int) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	ticks, _ := r.to.(ticker)
	for closing := false; ; {
		r.retryDue(giveUp)
		closed := r.deliverQueued(giveUp)
		if closed && len(r.lanes) == 0 {
			return r.abandon(giveUp)
		}
		if closed && !closing {
			closing = true // what waits for its next try need not wait for long
			r.hurry()
			continue
		}
		wake := r.next
		if ticks != nil {
			ticks.Tick()
			if due := ticks.Due(); !due.IsZero() && (wake.IsZero() || due.Before(wake)) {
				wake = due
			}
		}
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-r.buf.Ready():
		case <-timer.C:
		case change := <-r.reset:
			change()
		case <-giveUp:
			return r.abandon(giveUp)
		}
		timer.Stop()
	}
}

// deliverQueued delivers what is sealed, and reports whether nothing more will
// come.
func (r *runner) deliverQueued(giveUp <-chan struct{}) (closed bool) {
	for {
		select {
		case <-giveUp:
			return false
		default:
		}
		b, closed := r.take()
		switch {
		case b == nil:
			return closed
		case b.Mark:
			r.to.Reopen()
		case r.lanes[b.Key] != nil:
			l := r.lanes[b.Key]
			l.batches = append(l.batches, b)
			r.forget(b)
		default:
			if err := r.deliver(b, giveUp); err != nil {
				r.fail(b, err)
			}
		}
	}
}

// maxPrepared bounds the memory of what is prepared: it is a megabyte or two a
// batch.
const maxPrepared = 16

// take hands over the next batch or mark, and whether the buffer is closed if
// there is none. Where one core does not keep up, it takes out as many as there
// are cores and has them prepared; else the other cores are left to those who
// write the messages.
func (r *runner) take() (b *buffer.Batch, closed bool) {
	p, _ := r.to.(preparer)
	ahead := 0
	if p != nil && r.buf.Behind() {
		ahead = min(cap(turns), maxPrepared) - 1
	}
	for len(r.waiting) <= ahead {
		if b, closed = r.buf.Next(); b == nil {
			break
		}
		if len(r.waiting) > 0 && !b.Mark && r.lanes[b.Key] == nil {
			p.Prepare(b)
		}
		r.waiting = append(r.waiting, b)
	}
	if len(r.waiting) == 0 {
		return nil, closed
	}
	b = r.waiting[0]
	r.waiting = slices.Delete(r.waiting, 0, 1)
	return b, false
}

// forget drops what was prepared of a batch that is not delivered now.
func (r *runner) forget(b *buffer.Batch) {
	if p, ok := r.to.(preparer); ok {
		p.Forget(b)
	}
}

// deliver tries one batch. Whatever can never be delivered is done with.
func (r *runner) deliver(b *buffer.Batch, giveUp <-chan struct{}) error {
	start := time.Now()
	err := r.to.Deliver(b, giveUp)
	r.forget(b)
	r.onWrite(time.Since(start))
	var refused *Refused
	switch {
	case err == nil:
		r.buf.Done(b, 0, "")
	case errors.As(err, &refused):
		r.lost.note(r.log, b, refused)
		r.health.note(err.Error())
		select {
		case r.refusals <- struct{}{}:
		default:
		}
		r.buf.Done(b, refused.Messages, refused.Reason)
	default:
		return err
	}
	return nil
}

// fail opens a lane for a batch that is to be tried again.
func (r *runner) fail(b *buffer.Batch, err error) {
	l := &lane{batches: []*buffer.Batch{b}}
	r.lanes[b.Key] = l
	r.postpone(l, b.Key, err)
}

// postpone notes a failure and sets the time of the next try.
func (r *runner) postpone(l *lane, key string, err error) {
	var wait time.Duration
	l.delay, wait = r.retry.after(l.delay)
	l.next = time.Now().Add(wait)
	if r.next.IsZero() || l.next.Before(r.next) {
		r.next = l.next
	}
	r.health.set(true, err.Error())
	r.trouble.note(r.log, key, err, r.buf.Stats().Buffered)
}

// retryDue tries the lanes whose time has come.
func (r *runner) retryDue(giveUp <-chan struct{}) {
	if len(r.lanes) == 0 || time.Now().Before(r.next) {
		return
	}
	r.next = time.Time{}
	for key, l := range r.lanes {
		if time.Now().Before(l.next) {
			if r.next.IsZero() || l.next.Before(r.next) {
				r.next = l.next
			}
			continue
		}
		r.retryLane(key, l, giveUp)
	}
}

// retryLane delivers what a lane holds, in order, and closes it when all is
// delivered.
func (r *runner) retryLane(key string, l *lane, giveUp <-chan struct{}) {
	r.retries.Add(1)
	for len(l.batches) > 0 {
		if err := r.deliver(l.batches[0], giveUp); err != nil {
			r.postpone(l, key, err)
			return
		}
		l.batches = l.batches[1:]
		l.delay = 0
	}
	delete(r.lanes, key)
	if len(r.lanes) == 0 {
		r.next = time.Time{}
		r.health.set(false, "")
		r.trouble.end(r.log)
	}
}

// abandon makes one last try for what is left, closes the deliverer, and
// returns how many messages stay behind.
func (r *runner) abandon(giveUp <-chan struct{}) (undelivered int) {
	for key, l := range r.lanes {
		r.retryLane(key, l, giveUp)
	}
	if err := r.to.Close(giveUp); err != nil {
		r.log.Error().Err(err).Msg("closing")
	}
	r.lost.end(r.log)
	return int(r.buf.Stats().Buffered)
}

// set changes how the runner goes on, from its own goroutine, and lets it try
// at once what is being retried.
func (r *runner) set(retry Backoff, forward *Forward) {
	r.change(func() {
		r.retry = retry
		if f, ok := r.to.(*forwarder); ok {
			f.set(forward)
		}
		r.hurry()
	})
}

// hurry makes all lanes try at once, and begin with short waits again.
func (r *runner) hurry() {
	for _, l := range r.lanes {
		l.delay, l.next = 0, time.Time{}
	}
	r.next = time.Time{}
}

// change queues a change; a later one includes an earlier that was not made.
func (r *runner) change(f func()) {
	for {
		select {
		case r.reset <- f:
			return
		default:
		}
		select {
		case <-r.reset:
		default:
		}
	}
}

func (t *trouble) note(log zerolog.Logger, key string, err error, buffered uint64) {
	now := time.Now()
	if t.since.IsZero() {
		t.since, t.kinds, t.paths = now, make(map[string]bool), make(map[string]bool)
	}
	t.tries++
	t.most = max(t.most, buffered)
	t.paths[key] = true
	if kind := rootText(err); !t.kinds[kind] && (t.said || !now.Before(t.quietUntil)) {
		t.kinds[kind] = true
		t.said, t.quietUntil = true, now.Add(time.Minute)
		log.Error().Err(err).Uint64("buffered", buffered).Int("untold", t.untold).Msg("cannot deliver; kept in memory and tried again")
		t.untold = 0
	}
}

func (t *trouble) end(log zerolog.Logger) {
	untold := t.untold + 1
	if t.said {
		untold = 0
		log.Info().Dur("after", time.Since(t.since)).Int("tries", t.tries).Int("paths", len(t.paths)).Uint64("most_buffered", t.most).Msg("delivering again")
	}
	*t = trouble{quietUntil: t.quietUntil, untold: untold}
}

// rootText is the innermost error's text, without paths and addresses.
func rootText(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// lossLog logs lost messages once a minute at most, with their number.
type lossLog struct {
	quietUntil time.Time
	unsaid     int
	last       *Refused
	to         string // where that would have gone
}

func (l *lossLog) note(log zerolog.Logger, b *buffer.Batch, refused *Refused) {
	l.unsaid += refused.Messages
	l.last, l.to = refused, b.Key
	if now := time.Now(); !now.Before(l.quietUntil) {
		l.quietUntil = now.Add(time.Minute)
		l.end(log)
	}
}

// end logs what has not been said.
func (l *lossLog) end(log zerolog.Logger) {
	if l.unsaid > 0 {
		log.Error().Err(l.last.Err).Str("to", l.to).Str("reason", l.last.Reason).Int("messages", l.unsaid).Msg("messages lost")
		l.unsaid = 0
	}
}
