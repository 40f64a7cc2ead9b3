//go:build race || faults

package buffer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is what outlives a process: the kernel's queue, the files, and the
// arenas that are left behind.
type world struct {
	dir     string
	queue   []uint64 // messages that nobody has received yet
	sent    uint64
	files   map[string]*bytes.Buffer // by sink and key
	lastGen uint64
}

// process is one run of a daemon with one source and two sinks.
type process struct {
	*world
	t       *rapid.T
	arena   *Arena
	lefts   []*Left
	buffers map[string]*Buffer
	window  *Window
	steps   int // until it is killed; 0: never
}

// killedProcess is what a step panics with.
type killedProcess struct{}

// A process is killed at any step, again and again, while a source receives
// and two sinks deliver: in the end each sink's files hold each message that
// left the queue exactly once, in order.
func TestCrashModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		sub, err := os.MkdirTemp(dir, "world")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(sub)
		w := &world{dir: sub, files: make(map[string]*bytes.Buffer)}
		for range rapid.IntRange(1, 4).Draw(t, "kills") {
			w.live(t, rapid.IntRange(1, 150).Draw(t, "steps"))
		}
		w.live(t, 0)
		w.check(t)
	})
}

// live runs one process until it is killed, or, with no steps, until all is
// delivered.
func (w *world) live(t *rapid.T, steps int) {
	p := &process{world: w, t: t, steps: steps, buffers: make(map[string]*Buffer)}
	onStep = p.step
	defer func() {
		onStep = nil
		switch r := recover().(type) {
		case nil:
		case killedProcess:
			p.leave()
		default:
			panic(r)
		}
	}()
	p.start()
	for i := 0; steps > 0 || i < 20; i++ {
		p.act()
	}
	p.receive(0)
	for _, b := range p.buffers {
		b.Seal(ByShutdown)
	}
	p.deliver(1 << 30)
	if left, err := LeftIn(w.dir); err != nil || len(left) > 0 {
		t.Fatalf("all is delivered, but %v is left, %v", left, err)
	}
}

func (p *process) step(string) {
	if p.steps--; p.steps == 0 {
		panic(killedProcess{})
	}
}

// leave puts the memory of the process where a mapped file would have it.
func (p *process) leave() {
	if p.arena != nil {
		for i, s := range p.arena.segments() {
			path := filepath.Join(p.dir, fmt.Sprintf("%s%d-%d", filePrefix, p.lastGen, i))
			if err := os.WriteFile(path, s.all, 0o600); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	for _, l := range p.lefts {
		l.file.Close()
		defer release(l.all)                                      // or else it stays locked
		if _, err := os.Stat(l.Path); err == nil && raceEnabled { // else it is mapped
			if err := os.WriteFile(l.Path, l.all, 0o600); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

var modelSinks = []string{"one", "two"}

// start makes the arena, takes up what is left, and opens the source.
func (p *process) start() {
	paths, err := LeftIn(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	var batches []Found
	var windows []*Window
	for _, path := range paths {
		l, err := OpenLeft(path)
		if err != nil {
			p.t.Fatal(err)
		}
		p.lefts = append(p.lefts, l)
		b, w := l.Find()
		if l.Damaged > 0 {
			p.t.Fatalf("%d pieces are damaged", l.Damaged)
		}
		batches, windows = append(batches, b...), append(windows, w...)
	}
	slices.SortFunc(batches, Found.Compare)
	windows = Resolve(p.lefts, windows)
	p.lastGen++
	arena, err := NewArena(256 * PageSize)
	if err != nil {
		p.t.Fatal(err)
	}
	arena.current.header().generation = p.lastGen
	arena.current.header().sum = arena.current.header().check()
	p.arena = arena
	limits := Limits{Messages: rapid.IntRange(2, 9).Draw(p.t, "messages"), Bytes: 8 * PageSize, Flush: time.Hour}
	for _, name := range modelSinks {
		p.buffers[name] = New(name, arena.Share(100*PageSize), limits)
	}
	for _, f := range batches {
		p.buffers[f.Sink].Adopt(f, nil)
	}
	p.step("adopted")
	for _, w := range windows {
		if w.IsOpen() {
			p.append(w)
			w.End()
		}
		p.step("window done")
		w.Close()
	}
	for _, l := range p.lefts {
		l.Release()
	}
	p.window = arena.NewWindow("source", "", 8*64)
}

// act does one thing that a process does.
func (p *process) act() {
	switch rapid.IntRange(0, 6).Draw(p.t, "act") {
	case 0, 1, 2:
		p.receive(rapid.IntRange(1, 20).Draw(p.t, "sent"))
	case 3:
		p.deliver(rapid.IntRange(1, 4).Draw(p.t, "batches"))
	case 4:
		p.buffers[rapid.SampledFrom(modelSinks).Draw(p.t, "sink")].Seal(ByAge)
	case 5:
		p.renew()
	default:
		p.step("nothing")
	}
}

// renew does what a reload with another memory.cap does, or tries to.
func (p *process) renew() {
	settle, err := p.arena.Renew(rapid.SampledFrom([]int{250, 256}).Draw(p.t, "pages") * PageSize)
	if err != nil {
		p.t.Fatal(err)
	}
	p.step("renewed")
	if refused := rapid.IntRange(0, 3).Draw(p.t, "refused") == 0; refused {
		p.receive(3)
		settle(false)
		return
	}
	settle(true)
	p.step("settled")
	for _, b := range p.buffers {
		if rapid.Bool().Draw(p.t, "sealed") {
			b.Seal(ByReopen)
		}
	}
	old := p.window
	p.window = p.arena.NewWindow("source", "", 8*64)
	p.step("moved")
	old.Close()
}

// receive takes messages out of the queue and appends them.
func (p *process) receive(sent int) {
	for range sent {
		p.sent++
		p.queue = append(p.queue, p.sent)
	}
	memory := p.window.Memory()
	clear(memory)
	p.step("cleared")
	p.window.Begin()
	for at := 0; len(p.queue) > 0; at += 8 {
		binary.LittleEndian.PutUint64(memory[at:], p.queue[0])
		p.queue = p.queue[1:]
		p.step("received")
	}
	p.append(p.window)
	p.window.End()
	p.step("ended")
}

// append takes the messages of a window to the sinks that do not have them.
func (p *process) append(w *Window) {
	for _, name := range modelSinks {
		b, note := p.buffers[name], w.Note(name)
		b.Begin()
		b.Keep(note)
		for i := note.Had(0, 1<<20); ; i++ {
			n := binary.LittleEndian.Uint64(w.Memory()[8*i:])
			if n == 0 {
				break
			}
			text := fmt.Sprintf("%d %s", n, strings.Repeat("x", int(n%7)*300))
			note.Step(1)
			if n%11 == 0 {
				note.Skip(1) // filtered
			} else if !b.Append([]byte{'a' + byte(n%3)}, []byte(text), true, time.Now()) {
				p.t.Fatal("no memory")
			}
		}
		b.End()
	}
}

// deliver writes up to n batches of each sink.
func (p *process) deliver(n int) {
	for _, name := range modelSinks {
		for range n {
			bt, _ := p.buffers[name].Next()
			if bt == nil {
				break
			}
			p.write(name+bt.Key, bt)
			p.buffers[name].Done(bt, 0, "")
		}
	}
}

// write appends a batch to its file, as a member with its name, in pieces.
func (p *process) write(path string, bt *Batch) {
	f := p.files[path]
	if f == nil {
		f = new(bytes.Buffer)
		p.files[path] = f
	}
	member := fmt.Sprintf("[%x %d]%s", bt.Arena, bt.Sequence, bt.Bytes())
	if i := bt.Intent; i != nil {
		there := f.Bytes()[min(int(i.Offset), f.Len()):]
		if string(there) == member {
			return
		}
		if strings.HasPrefix(member, string(there)) {
			f.Truncate(int(i.Offset))
		}
		bt.Intent = nil
	}
	bt.Intend(Place{Offset: int64(f.Len()), Length: int64(len(member))})
	p.step("intended")
	f.WriteString(member[:len(member)/2])
	p.step("torn")
	f.WriteString(member[len(member)/2:])
	p.step("written")
}

// check compares the files with what was sent.
func (w *world) check(t *rapid.T) {
	for _, sink := range modelSinks {
		for key := range uint64(3) {
			var want []string
			for n := uint64(1); n <= w.sent; n++ {
				if n%3 == key && n%11 != 0 {
					want = append(want, fmt.Sprint(n))
				}
			}
			var got []string
			if f := w.files[sink+string(rune('a'+key))]; f != nil {
				for _, line := range strings.Split(strings.TrimSpace(f.String()), "\n") {
					line = line[strings.LastIndexByte(line, ']')+1:]
					got = append(got, strings.Fields(line)[0])
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Fatalf("sink %s, key %d: %v, want %v", sink, key, got, want)
			}
		}
	}
}
