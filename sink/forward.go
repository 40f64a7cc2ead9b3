package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"logboom/buffer"
)

// Forward is what a syslog sink sends to and how.
type Forward struct {
	Targets        []Target      // in order of preference; at least one
	ConnectTimeout time.Duration // for one target, the look-up of its name included
	WriteTimeout   time.Duration // for one batch
	ResolveEvery   time.Duration // how often UDP names are looked up again and better targets tried
	ResendWindow   int           // bytes; the last frames of a broken stream that go out again
}

// TooLarge is the reason of losses of records that no datagram can hold.
const TooLarge = "too large"

// betterTimeout bounds the search for a better target than the one that
// works: batches wait meanwhile.
const betterTimeout = time.Second

var errGivenUp = errors.New("given up at the stop")

// connection leads to one target.
type connection interface {
	// check finds out, without waiting, whether the peer has ended it.
	check() error
	// deliver sends what is left of text and notes in p how far it got. The
	// text is not kept.
	deliver(text []byte, framing Framing, p *progress, timeout time.Duration, giveUp <-chan struct{}) error
	// finish closes it; an error says that the peer may not have got all.
	finish(giveUp <-chan struct{}) error
	// close closes it as it is.
	close()
}

// forwarder delivers batches to the first of its targets that can be reached.
//
// Each connection looks names up anew and tries the targets from the most
// preferred on. One that ended before it had taken a batch is passed over
// once, so that a target that accepts connections but no messages does not
// keep the others from their turn. While a less preferred target is in use,
// the better ones are tried every ResolveEvery.
//
// A batch is delivered when the kernel has taken all of it. A stream tells
// nothing of what became of it then, so its last frames are kept (see
// [window]) and sent again, before all else, after it broke.
type forwarder struct {
	conf     Forward
	counters *counters
	log      zerolog.Logger
	resolver *net.Resolver

	conn    connection // nil: none
	at      int        // the target that conn leads to
	address string     // and what its name stood for
	framing Framing    // of the stream: a receiver goes by the first frame
	useful  bool       // conn took a whole batch
	first   int        // the target to try first next time
	checked time.Time  // when a better target was last looked for

	arena    uint64 // with sequence: the batch that batch is about
	sequence uint64
	batch    progress // kept over tries, so that no datagram goes out twice
	window   window
	news     news
}

// news is what is to be logged of new connections.
type news struct {
	target     Target // that the last line named
	known      bool
	quietUntil time.Time
	unsaid     int // connections since the last line
	resent     uint64
}

func newForwarder(conf *Forward, counters *counters, log zerolog.Logger) *forwarder {
	return &forwarder{
		conf: *conf, counters: counters, log: log, resolver: net.DefaultResolver,
		window: window{limit: conf.ResendWindow},
	}
}

// set changes targets and times. The connection is closed if it no longer
// fits; what its target had not taken for sure goes to the next one. Called
// from the runner's goroutine.
func (f *forwarder) set(conf *Forward) {
	if f.conn != nil {
		at := slices.Index(conf.Targets, f.conf.Targets[f.at])
		if at < 0 || conf.ResendWindow != f.conf.ResendWindow {
			f.leave(nil)
		}
		f.at = max(at, 0)
	}
	f.conf = *conf
	f.first, f.checked = 0, time.Time{}
	f.window.resize(conf.ResendWindow)
}

// Deliver sends a batch. The time that it takes is bounded by the connect
// timeouts of the targets and by the write timeout, once for what is sent
// again and once for the batch.
func (f *forwarder) Deliver(b *buffer.Batch, giveUp <-chan struct{}) error {
	if ended(giveUp) {
		return errGivenUp
	}
	if f.sequence != b.Sequence || f.arena != b.Arena {
		f.arena, f.sequence, f.batch = b.Arena, b.Sequence, progress{}
	}
	framing, _ := b.Spec.(Framing)
	if err := f.ready(framing, giveUp); err != nil {
		return err
	}
	from := f.batch.done
	err := f.conn.deliver(b.Bytes(), framing, &f.batch, f.conf.WriteTimeout, giveUp)
	target := f.conf.Targets[f.at]
	if err != nil {
		f.drop()
		return fmt.Errorf("%s: %w", target, err)
	}
	f.useful = true
	if target.isStream() {
		f.window.add(b.Bytes()[from:], framing)
	}
	if n := f.batch.refused; n > 0 {
		// A notice is a record too, but no message.
		return &Refused{
			Reason: TooLarge, Messages: min(n, b.Messages),
			Err: fmt.Errorf("%s: %d records too large for a datagram", target, n),
		}
	}
	return nil
}

// ready sees to a connection that takes frames of this framing.
func (f *forwarder) ready(framing Framing, giveUp <-chan struct{}) error {
	if f.conn != nil && f.conn.check() != nil {
		f.drop()
	}
	if err := f.improve(framing, giveUp); err != nil {
		return err
	}
	for {
		if f.conn == nil {
			if err := f.connect(framing, f.conf.ConnectTimeout, giveUp); err != nil {
				return err
			}
		}
		if f.framing == framing || !f.conf.Targets[f.at].isStream() {
			return nil
		}
		// Once that succeeds nothing is left to send again, and the next
		// connection has the framing of the batch.
		if err := f.finish(giveUp); err != nil {
			return err
		}
	}
}

// connect tries the targets in turn.
func (f *forwarder) connect(framing Framing, timeout time.Duration, giveUp <-chan struct{}) error {
	var failed error
	for i := range f.conf.Targets {
		at := (f.first + i) % len(f.conf.Targets)
		conn, address, err := f.open(f.conf.Targets[at], timeout, giveUp)
		if err == nil {
			return f.use(at, conn, address, framing, giveUp)
		}
		if ended(giveUp) {
			return errGivenUp
		}
		err = fmt.Errorf("%s: %w", f.conf.Targets[at], err)
		if failed == nil {
			failed = err
		} else {
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	f.first = 0
	return failed
}

func (f *forwarder) open(t Target, timeout time.Duration, giveUp <-chan struct{}) (connection, string, error) {
	ctx, cancel := context.WithTimeout(until{context.Background(), giveUp}, timeout)
	defer cancel()
	switch t.Network {
	case "tcp":
		return openStream(ctx, f.resolver, t.Address, &f.conf, f.counters)
	case "udp":
		return openUDP(ctx, f.resolver, t.Address, f.counters)
	}
	return openUnixgram(t.Address, f.counters)
}

// use takes a new connection and sends what the one before may have lost.
func (f *forwarder) use(at int, conn connection, address string, framing Framing, giveUp <-chan struct{}) error {
	f.conn, f.at, f.address = conn, at, address
	f.framing, f.useful, f.checked = framing, false, time.Now()
	if len(f.window.text) == 0 {
		f.tell()
		return nil
	}
	f.framing = f.window.framing
	again := progress{begun: len(f.window.text)}
	err := f.conn.deliver(f.window.text, f.framing, &again, f.conf.WriteTimeout, giveUp)
	if err != nil {
		f.drop()
		return fmt.Errorf("%s: sending the last messages again: %w", f.conf.Targets[at], err)
	}
	if !f.conf.Targets[at].isStream() {
		f.window.clear()
	}
	f.tell()
	return nil
}

// tell logs a connection that is not the first, or not to the preferred
// target: each change of the target at once, the rest once a minute at most.
func (f *forwarder) tell() {
	n, target := &f.news, f.conf.Targets[f.at]
	if !n.known && f.at == 0 {
		n.target, n.known = target, true
		return
	}
	n.unsaid++
	now := time.Now()
	if n.target == target && now.Before(n.quietUntil) {
		return
	}
	resent := f.counters.resent.Load()
	f.log.Info().Stringer("to", target).Str("address", f.address).
		Int("connections", n.unsaid).Uint64("resent", resent-n.resent).Msg("connected anew")
	*n = news{target: target, known: true, quietUntil: now.Add(time.Minute), resent: resent}
}

// improve goes over to a more preferred target, or to the address that a UDP
// name stands for by now, if it is time to look and there is one. What works
// is kept otherwise.
func (f *forwarder) improve(framing Framing, giveUp <-chan struct{}) error {
	if f.conn == nil || time.Since(f.checked) < f.conf.ResolveEvery {
		return nil
	}
	f.checked = time.Now()
	better := f.conf.Targets[:f.at]
	if f.conf.Targets[f.at].Network == "udp" {
		better = f.conf.Targets[:f.at+1]
	}
	timeout := min(betterTimeout, f.conf.ConnectTimeout)
	for at, target := range better {
		conn, address, err := f.open(target, timeout, giveUp)
		switch {
		case err != nil:
			continue
		case at == f.at && address == f.address:
			conn.close()
			return nil
		}
		f.leave(giveUp)
		return f.use(at, conn, address, framing, giveUp)
	}
	return nil
}

// leave ends a connection for a reason of ours. If the peer may not have got
// all, the next connection gets the window, as after a broken one.
func (f *forwarder) leave(giveUp <-chan struct{}) {
	if f.conn.check() != nil {
		f.drop()
	} else if err := f.finish(giveUp); err != nil {
		f.log.Info().Err(err).Msg("not closed cleanly; the last messages are sent again")
	}
}

// drop closes a connection that failed.
func (f *forwarder) drop() {
	f.conn.close()
	f.conn, f.first = nil, 0
	if !f.useful {
		f.first = (f.at + 1) % len(f.conf.Targets)
	}
}

// finish closes a connection that works. Without an error nothing of it is
// to be sent again.
func (f *forwarder) finish(giveUp <-chan struct{}) error {
	err := f.conn.finish(giveUp)
	f.conn, f.first = nil, 0
	if err != nil {
		return fmt.Errorf("%s: closing: %w", f.conf.Targets[f.at], err)
	}
	f.window.clear()
	return nil
}

// Reopen has nothing to do: there are no files.
func (f *forwarder) Reopen() {}

// Close ends the connection once the peer has acknowledged all, waiting a
// little for that. Where the connection broke after the last batch, it sends
// the window again first.
func (f *forwarder) Close(giveUp <-chan struct{}) error {
	if f.conn != nil && f.conn.check() != nil {
		f.drop()
	}
	if f.conn == nil && len(f.window.text) > 0 && !ended(giveUp) {
		timeout := min(lingerTimeout, f.conf.ConnectTimeout)
		if err := f.connect(f.window.framing, timeout, giveUp); err != nil {
			return fmt.Errorf("the last messages sent may not have arrived: %w", err)
		}
	}
	if f.conn == nil {
		return nil
	}
	return f.finish(giveUp)
}

// ended reports whether a channel is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// until is a context that ends when a channel is closed.
type until struct {
	context.Context
	ended <-chan struct{}
}

func (u until) Done() <-chan struct{} { return u.ended }

func (u until) Err() error {
	if ended(u.ended) {
		return context.Canceled
	}
	return nil
}
