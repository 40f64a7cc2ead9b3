package syslog

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StreamWindow is a [Window] that what has arrived of a connection is read
// into. Whole frames are handed out in bursts, each between Begin and End.
type StreamWindow interface {
	Window
	// Move goes on in other memory of at least n bytes, zeroed, which fill
	// writes to first: one store puts it in the place of the old. False: there
	// is no room.
	Move(n int, fill func(memory []byte)) bool
	IsOld() bool // its memory is wanted back: other windows lie elsewhere
	Close() error
}

// streamWindow is the size of a window, in bytes; one with a long frame is
// larger. A connection has one only while it has something in it.
const streamWindow = 16 << 10

// spareWindows is how many a Stream keeps that no connection has.
const spareWindows = 8

// keptStream is what a window says of the connection that is read into it, for
// whoever finds it after a kill. As in package proc, a record is written beside
// the one in force and put in force by one store.
//
// The kernel itself writes how much it has read, into memory that the window
// holds too: so recvmmsg(2), for one message, and not read(2).
type keptStream struct {
	window StreamWindow // nil: the connection is read into memory that ends with the process
	head   *streamHead
}

// streamHead is what the memory of a window begins with; the text follows.
type streamHead struct {
	magic   uint32
	limit   uint32 // of a frame, bytes
	peerLen uint32
	peer    [48]byte // "" on a unix socket
	current uint32   // atomic; the record in force
	records [2]streamRecord

	at      uint32 // where in the text read.n bytes were read to, if that is where the record ends
	read    mmsghdr
	readVec unix.Iovec
}

// streamRecord is what was read and is not done, and the state of the framer
// before it.
type streamRecord struct {
	start, end  uint32 // in the text
	count, skip int64
	flags       uint32
}

const (
	streamMagic = 0x73747265
	streamStart = 256 // of the text

	// Flags of a record; the lowest two bits are the framing.
	streamSkipLine = 1 << 2
	streamPartial  = 1 << 3
	streamBegun    = 1 << 4 // it is known to be no TLS
	streamBurst    = 1 << 5 // messages are being handed out, and the window notes how far
	streamFlush    = 1 << 6 // the first of them is a frame whose end had not come
)

var _ [streamStart - unsafe.Sizeof(streamHead{})]byte

func headOf(memory []byte) *streamHead { return (*streamHead)(unsafe.Pointer(&memory[0])) }

// open takes a window for what the connection sends next; nothing is held. It
// may get none.
func (k *keptStream) open(s *Stream, peer string, f *Framer) {
	if k.window = s.takeWindow(); k.window == nil {
		return
	}
	k.head = headOf(k.window.Memory())
	k.head.describe(peer, f.limit)
	f.use(k.window.Memory()[streamStart:])
	k.head.put(recordOf(f))
}

func (h *streamHead) describe(peer string, limit int) {
	h.magic, h.limit = streamMagic, uint32(limit)
	h.peerLen = uint32(copy(h.peer[:], peer))
}

// put puts a record in force.
func (h *streamHead) put(r streamRecord) {
	next := (h.current + 1) & 1
	h.records[next] = r
	atomic.StoreUint32(&h.current, next)
}

// recordOf describes what a framer holds.
func recordOf(f *Framer) streamRecord {
	r := streamRecord{start: uint32(f.r), end: uint32(f.w), count: f.count, skip: f.skip, flags: uint32(f.framing)}
	if f.skipLine {
		r.flags |= streamSkipLine
	}
	if f.partial {
		r.flags |= streamPartial
	}
	if f.begun {
		r.flags |= streamBegun
	}
	return r
}

// state is what the record says of the framer.
func (r *streamRecord) state() framerState {
	return framerState{
		framing: Framing(r.flags & 3), count: r.count, skip: r.skip,
		skipLine: r.flags&streamSkipLine != 0, partial: r.flags&streamPartial != 0, begun: r.flags&streamBegun != 0,
	}
}

// space is where the next read goes: behind what is held. Where too little
// room is left that is moved to the front, unless it would lie over itself
// then; else into a larger window. Nil: there is no room for one.
func (k *keptStream) space(f *Framer) []byte {
	held, size := f.Held(), len(f.buf)+streamStart
	if f.r > 0 && held <= f.r {
		if held > 0 {
			k.head.put(recordOf(f)) // nothing before it is wanted, from here on
			copy(f.buf, f.buf[f.r:f.w])
		}
		f.use(f.buf)
		k.head.put(recordOf(f))
	}
	switch {
	case held > 0 && k.window.IsOld():
		k.move(f, size)
	case size > streamWindow && held < streamWindow/4:
		k.move(f, streamWindow) // or stays
	}
	if len(f.buf)-f.w < minRead && !k.move(f, 2*size) {
		return nil
	}
	return f.buf[f.w:]
}

// move goes on in a window of n bytes.
func (k *keptStream) move(f *Framer, n int) bool {
	return k.window.Move(n, func(memory []byte) {
		old := k.head
		k.head = headOf(memory)
		k.head.describe(string(old.peer[:old.peerLen]), f.limit)
		text := memory[streamStart:]
		copy(text, f.buf[f.r:f.w])
		f.use(text)
		k.head.put(recordOf(f))
	})
}

// receive reads into the space, and never waits.
func (k *keptStream) receive(fd int, space []byte, f *Framer) (int, error) {
	h := k.head
	h.readVec.Base = &space[0]
	h.readVec.SetLen(len(space))
	h.read.Iov = &h.readVec
	h.read.SetIovlen(1)
	h.at = uint32(f.w)
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&h.read)), 1, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(h.read.n), nil
}

// update records what the framer holds.
func (k *keptStream) update(f *Framer) {
	if k.window != nil {
		k.head.put(recordOf(f))
		k.head.read.n = 0
	}
}

// begin says that messages are being handed out: those that follow the record
// in force, of which the first may be a frame without its end.
func (k *keptStream) begin(flags uint32) {
	if k.window == nil {
		return
	}
	k.window.Begin()
	r := k.head.records[k.head.current]
	r.flags |= streamBurst | flags
	k.head.put(r)
}

// done says that all that the framer has given out is with its takers.
func (k *keptStream) done(f *Framer) {
	if k.window != nil {
		k.head.put(recordOf(f))
		k.window.End()
	}
}

// close gives the window up. What it holds is not wanted.
func (k *keptStream) close(s *Stream, f *Framer) {
	if k.window == nil {
		return
	}
	k.head.put(streamRecord{})
	s.giveWindow(k.window)
	*k = keptStream{}
	f.buf, f.r, f.w = nil, 0, 0
}

// takeWindow returns a window that holds nothing; nil if there is none.
func (s *Stream) takeWindow() StreamWindow {
	if s.cfg.Window == nil {
		return nil
	}
	s.mu.Lock()
	if n := len(s.spare); n > 0 {
		w := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return w
	}
	s.mu.Unlock()
	return s.cfg.Window(streamWindow)
}

func (s *Stream) giveWindow(w StreamWindow) {
	s.mu.Lock()
	keep := len(s.spare) < spareWindows && len(w.Memory()) == streamWindow && !w.IsOld()
	if keep {
		s.spare = append(s.spare, w)
	}
	s.mu.Unlock()
	if !keep {
		w.Close() // nothing is in it
	}
}

// GiveBack closes the windows that no connection has, in which nothing is.
func (s *Stream) GiveBack() error {
	s.mu.Lock()
	spare := s.spare
	s.spare = nil
	s.mu.Unlock()
	var err error
	for _, w := range spare {
		err = errors.Join(err, w.Close())
	}
	return err
}

// LeftStream is what a window of a process that was killed holds of a
// connection.
type LeftStream struct {
	window StreamWindow
	head   *streamHead
	record streamRecord
	framer *Framer
}

var errNoStream = errors.New("no memory that a connection was read into")

// OpenLeftStream finds what a window holds. Whatever that is, nothing outside
// it is touched.
func OpenLeftStream(w StreamWindow) (*LeftStream, error) {
	memory := w.Memory()
	if len(memory) < streamStart {
		return nil, errNoStream
	}
	l := &LeftStream{window: w, head: headOf(memory)}
	h := l.head
	if h.magic == 0 { // it was killed before it was read into
		l.framer = NewFramer(FramingLF, 1)
		return l, nil
	}
	if h.magic != streamMagic || h.current > 1 || h.peerLen > uint32(len(h.peer)) || h.limit == 0 || h.limit > 1<<30 {
		return nil, errNoStream
	}
	r := h.records[h.current]
	text := memory[streamStart:]
	if r.start > r.end || int64(r.end) > int64(len(text)) || r.count < 0 || r.skip < 0 || Framing(r.flags&3) > FramingLF {
		return nil, errNoStream
	}
	if h.at == r.end {
		r.end += min(h.read.n, uint32(len(text))-r.end)
	}
	l.record = r
	l.framer = &Framer{limit: int(h.limit), framerState: r.state(), buf: text, r: int(r.start), w: int(r.end)}
	return l, nil
}

// Holds reports whether there is anything.
func (l *LeftStream) Holds() bool { return l.framer.Held() > 0 }

// Messages returns the messages that the window holds: the last may be the
// beginning of one, marked partial. They point into the memory. The window
// notes, from then on, what is done with them: its Begin was called.
func (l *LeftStream) Messages(raw bool, received time.Time) []Message {
	r, f := l.record, l.framer
	peer := string(l.head.peer[:l.head.peerLen])
	if r.flags&streamBurst == 0 {
		l.window.End() // of the burst before, whose notes are not for these
		l.window.Begin()
		r.flags |= streamBurst
		l.head.put(r)
	}
	l.head.read.n = 0 // what was read is in the record now
	if first, ok := f.first(); ok && peer != "" && first == tlsHandshake {
		return nil
	}
	var ms []Message
	var recent recent
	add := func(frame Frame, ok bool) bool {
		if ok {
			var m Message
			m.scan(frame.Text, raw, peer == "", &recent)
			m.Received, m.Peer, m.Truncated, m.Partial = received, peer, frame.Truncated, frame.Partial || f.ended
			ms = append(ms, m)
		}
		return ok
	}
	if r.flags&streamFlush != 0 {
		add(f.Flush())
	}
	for add(f.Next()) {
	}
	for f.End(); add(f.Next()); {
	}
	return ms
}

// Done says that all messages are with their takers.
func (l *LeftStream) Done() {
	l.head.put(streamRecord{})
	l.window.End()
}
