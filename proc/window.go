package proc

import (
	"bytes"
	"errors"
	"sync/atomic"
	"time"
	"unsafe"
)

// Window is memory that outlives the process, to read a pipe into.
type Window interface {
	Memory() []byte // zeroed at first
	// Begin and End bracket the handing out of one block. What a handler notes
	// of it in between is kept with the window.
	Begin()
	End()
	// Resize returns another window of at least n bytes, nil if there is no
	// room. It is in force when Replace has been called, which ends others with
	// the same store; they are closed.
	Resize(n int) Window
	Replace(others ...Window)
	IsOld() bool // the memory is wanted back: Resize has other
	Close() error
}

// kept is what a window says of the text in it, for whoever finds it after a
// kill. A record is written beside the one in force, and put in force by one
// store. Without a window all of this does nothing.
type kept struct {
	window Window
	head   *keptHead
}

// keptHead is what the memory of a window begins with; the text follows.
type keptHead struct {
	magic   uint32
	current uint32 // atomic; the record in force
	records [2]keptRecord
}

// keptRecord is offsets into the text.
type keptRecord struct {
	start, end uint32 // of what was read and is not done
	block      uint32 // the end of the block from start on that is being handed out; 0: none
	flags      uint32
}

const (
	keptMagic = 0x6c696e66
	keptSize  = 64 // of the head, in bytes

	// Flags of a record.
	keptPartial = 1 << 0 // the block is a piece of a line
	keptLast    = 1 << 1 // the block is the last
	keptSplit   = 1 << 2 // a piece of the line at start went out before
	keptClean   = 1 << 3 // behind end there are zeros, or what is being read
	keptJoined  = 1 << 4 // the block is a record, or a piece of one
	keptParted  = 1 << 5 // a piece of the record that follows the block went out before
)

// use puts the text into a window, and returns the room for it.
func (k *kept) use(w Window) []byte {
	k.window = w
	k.head = (*keptHead)(unsafe.Pointer(&w.Memory()[0]))
	k.head.magic = keptMagic
	return w.Memory()[keptSize:]
}

func (k *kept) record(r keptRecord) {
	if k.head == nil {
		return
	}
	next := (k.head.current + 1) & 1
	k.head.records[next] = r
	atomic.StoreUint32(&k.head.current, next)
}

// Left is the text of a window that a process that was killed has left behind.
type Left struct {
	lines *lines
	block keptRecord // that was being handed out; block 0: none
}

var errNoText = errors.New("no memory that a pipe was read into")

// OpenLeft finds the text of a window. The handler gets what is handed out,
// as from a reader of that configuration. Whatever the memory holds, nothing
// outside it is touched.
func OpenLeft(w Window, cfg LineConfig, handler func(Block)) (*Left, error) {
	memory := w.Memory()
	if len(memory) <= keptSize {
		return nil, errNoText
	}
	l := newLines(cfg, 0, handler)
	l.kept = kept{window: w, head: (*keptHead)(unsafe.Pointer(&memory[0]))}
	if l.kept.head.magic != keptMagic || l.kept.head.current > 1 {
		return nil, errNoText
	}
	l.buf = memory[keptSize:]
	r := l.kept.head.records[l.kept.head.current]
	if r.start > r.end || int64(r.end) > int64(len(l.buf)) || r.block != 0 && (r.block < r.start || r.block > r.end) {
		return nil, errNoText
	}
	l.start, l.mark, l.end = int(r.start), int(r.start), int(r.end)
	l.split, l.parted = r.flags&keptSplit != 0, r.flags&keptParted != 0
	if r.flags&keptClean != 0 {
		l.end += len(bytes.TrimRight(l.buf[l.end:], "\x00"))
	}
	return &Left{lines: l, block: r}, nil
}

// HoldsText reports whether a window that was left behind has any text. What
// cannot be told counts as text.
func HoldsText(w Window) bool {
	f, err := OpenLeft(w, LineConfig{}, nil)
	return err != nil || f.lines.end > f.lines.start
}

// Lines hands out the block that was being handed out, under the notes that
// were kept of it, and then all whole lines, or all records that are over.
func (f *Left) Lines(now time.Time) {
	l := f.lines
	if b := f.block; b.block > 0 {
		l.give(Block{
			Text: l.buf[b.start:b.block], Received: now,
			Partial: b.flags&keptPartial != 0, Last: b.flags&keptLast != 0, Record: b.flags&keptJoined != 0,
		})
		f.block.block = 0
	} else {
		l.kept.window.End() // of a block that was done, whose notes are not for the next
	}
	if i := bytes.LastIndexByte(l.buf[l.start:l.end], '\n'); i >= 0 {
		l.whole(l.start+i+1, now)
	}
	l.overlong(now)
}

// Finish hands out the rest, a record and a line without their ends, and closes
// the window.
func (f *Left) Finish(now time.Time) { f.lines.finish(now) }

// Resume lets the reader begin with the rest, as if it had just read it: what
// is missing of the line may still be in the pipe. It is called once, before
// Run, after Lines; the window is closed. Where there is no room for another,
// the rest lies in memory that ends with the process, or is given out as it is
// if there is none either.
func (r *Reader) Resume(f *Left) {
	from := f.lines
	text := from.buf[from.start:from.end]
	l, old := r.lines, from.kept.window
	l.space()
	l.split, l.parted = from.split, from.parted
	l.since, l.joined = time.Now(), time.Now()
	defer func() { l.mark = l.start + min(from.mark-from.start, l.end-l.start) }()
	if l.kept.window != nil && l.resize(max(len(l.buf), 2*len(text))+keptSize, text, old) {
		return
	}
	size := max(minBuffer, 2*len(text))
	if more := size - minBuffer; more > 0 && l.Reserve != nil && !l.Reserve(more) {
		l.split, l.parted = false, false // of what comes, which begins anew
		f.Finish(time.Now())
		return
	}
	if l.kept.window != nil {
		l.kept.window.Close() // nothing is in it
		l.kept = kept{}
	}
	l.buf, l.small = make([]byte, size), minBuffer
	l.end = copy(l.buf, text)
	old.Close()
}
