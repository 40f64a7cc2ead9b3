package sink

import (
	"bytes"
	"runtime"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// turns has room for one element a core: so many members are made ahead at once,
// for all sinks. What a sink makes in its own turn comes besides, so that none
// waits for another's.
var turns = make(chan struct{}, runtime.GOMAXPROCS(0))

// maxSinks bounds how many sinks get a processor of the runtime.
const maxSinks = 16

// Processors is how many processors (GOMAXPROCS) so many file sinks want the
// runtime to have: one a core, and one more for each. Making a member takes
// milliseconds, and while all processors are at one, the runtime looks every
// 10 ms only who is to wake up: a reader would let its pipe fill. The kernel
// shares the cores out among the threads, and lets such a reader go first, as it
// has slept.
func Processors(sinks int) int { return cap(turns) + min(sinks, maxSinks) }

// press makes members of batches, one at a time. What it returns is valid
// until the next.
type press struct {
	compress map[compression]compressor
	unframed []byte // the lines of a batch of frames
}

// compressor makes a member of a batch. The text is not kept, and what it
// returns is valid until the next call.
type compressor interface {
	Member(text []byte, info gzipwriter.Info) ([]byte, error)
}

// compression is a way to compress.
type compression struct {
	format gzipwriter.Format
	level  int
}

// member returns the bytes of a batch as they go into its file.
func (p *press) member(b *buffer.Batch, spec *File) ([]byte, error) {
	text, messages := b.Bytes()[spec.skip:], b.Messages
	if spec.skip > 0 {
		messages = max(messages-bytes.Count(b.Bytes()[:spec.skip], []byte{'\n'}), 1)
	}
	if spec.framed {
		p.unframed = unframe(p.unframed[:0], text)
		text = p.unframed
	}
	if spec.Compress == gzipwriter.Plain {
		return text, nil
	}
	how := compression{spec.Compress, spec.Level}
	level := p.compress[how]
	if level == nil {
		var err error
		if how.format == gzipwriter.Zstd {
			level, err = gzipwriter.NewZstdWriter(how.level)
		} else {
			level, err = gzipwriter.NewWriter(how.level)
		}
		if err != nil {
			return nil, err
		}
		if p.compress == nil {
			p.compress = make(map[compression]compressor)
		}
		p.compress[how] = level
	}
	return level.Member(text, gzipwriter.Info{
		Messages: uint32(messages), First: b.First.UnixNano(), Last: b.Last().UnixNano(),
		Arena: b.Arena, Sequence: b.Sequence, Dropped: uint32(b.Dropped),
	})
}

// presses make members on the cores that are there: that of the batch whose
// turn it is where it is wanted, and those of some that wait behind it
// meanwhile. It belongs to one goroutine.
type presses struct {
	own   press
	ahead map[*buffer.Batch]*aheadPress
	idle  []*aheadPress
}

// aheadPress makes one member on a goroutine of its own.
type aheadPress struct {
	press
	done   chan struct{} // closed once there is
	member []byte
	err    error
}

// begin starts on the member of a batch whose turn it is not yet, if there is a
// core for it. The batch must stay as it is until forget.
func (p *presses) begin(b *buffer.Batch, spec *File) {
	select {
	case turns <- struct{}{}:
	default:
		return
	}
	var a *aheadPress
	if n := len(p.idle); n > 0 {
		a, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		a = new(aheadPress)
	}
	a.done = make(chan struct{})
	if p.ahead == nil {
		p.ahead = make(map[*buffer.Batch]*aheadPress)
	}
	p.ahead[b] = a
	go func() {
		a.member, a.err = a.press.member(b, spec)
		<-turns
		close(a.done)
	}()
}

// member returns the member of a batch, made ahead or now. It is valid until
// the next call of member, or forget of this batch.
func (p *presses) member(b *buffer.Batch, spec *File) ([]byte, error) {
	if a := p.ahead[b]; a != nil {
		<-a.done
		return a.member, a.err
	}
	return p.own.member(b, spec)
}

// forget ends what begin began for a batch, if it did.
func (p *presses) forget(b *buffer.Batch) {
	if a := p.ahead[b]; a != nil {
		<-a.done
		delete(p.ahead, b)
		p.idle = append(p.idle, a)
	}
}

func (p *presses) close() {
	for b := range p.ahead {
		p.forget(b)
	}
}
