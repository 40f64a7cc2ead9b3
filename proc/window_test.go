package proc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// fakeArena is a row of windows, of which a copy can be taken at any moment, as
// a kill leaves it.
type fakeArena struct {
	windows []*fakeWindow
	room    int    // windows that may still be made; below 0: any number
	pass    func() // called around each call; nil: nothing
}

type fakeWindow struct {
	arena  *fakeArena
	memory []byte
	burst  int // number of the block, times two, plus 1 while it is open
	taken  int // the burst that the handler is done with, plus 1
	closed bool
	old    bool
}

func (a *fakeArena) window(n int) *fakeWindow {
	if a.room == 0 {
		return nil
	}
	a.room--
	return &fakeWindow{arena: a, memory: make([]byte, n)}
}

// take is what LineConfig.Window is.
func (a *fakeArena) take(n int) Window {
	w := a.window(n)
	if w == nil {
		return nil
	}
	a.windows = append(a.windows, w)
	return w
}

func (w *fakeWindow) Memory() []byte { return w.memory }

func (w *fakeWindow) Begin() { w.arena.around(func() { w.burst |= 1 }) }
func (w *fakeWindow) End()   { w.arena.around(func() { w.burst = (w.burst | 1) + 1 }) }

func (a *fakeArena) around(call func()) {
	if a.pass != nil {
		a.pass()
		defer a.pass()
	}
	call()
}

func (w *fakeWindow) Resize(n int) Window {
	if other := w.arena.window(n); other != nil {
		return other
	}
	return nil
}

func (w *fakeWindow) Replace(others ...Window) {
	w.arena.around(func() {
		w.arena.windows = append(w.arena.windows, w)
		for _, o := range others {
			o.(*fakeWindow).closed = true
		}
	})
}

func (w *fakeWindow) IsOld() bool { return w.old }

func (w *fakeWindow) Close() error {
	w.closed = true
	return nil
}

// killed is what a kill at this moment leaves: windows that are not closed.
func (a *fakeArena) killed() *fakeArena {
	left := &fakeArena{room: -1}
	for _, w := range a.windows {
		if !w.closed {
			left.windows = append(left.windows, &fakeWindow{left, bytes.Clone(w.memory), w.burst, w.taken, false, false})
		}
	}
	return left
}

// marked is the text of a block, with a mark at the end of each record.
func marked(b Block) string {
	switch text := string(b.Text); {
	case b.Partial && !b.Last:
		return text + "…"
	case b.Record || b.Last:
		return text + "|"
	default:
		return strings.ReplaceAll(text, "\n", "\n|")
	}
}

var unmarked = strings.NewReplacer("…", "", "|", "")

// crash reads a text in pieces, is killed at one moment, and continues with
// what is left, and with what was not read yet. It returns all text that was
// handed out, marked, and false when there was no such moment.
func crash(t *testing.T, cfg LineConfig, text string, step, moment int, resume bool) (got string, killed bool) {
	t.Helper()
	type kill struct{}
	arena := &fakeArena{room: -1}
	var out strings.Builder
	passed := 0
	pass := func() {
		if passed++; passed == moment {
			panic(kill{})
		}
	}
	handler := func(b Block) {
		w := b.Window.(*fakeWindow)
		if w.taken == w.burst {
			return // noted: before the kill
		}
		pass()
		out.WriteString(marked(b))
		w.taken = w.burst
		pass()
	}
	arena.pass = pass
	cfg.Window = func(n int) Window { return arena.take(n) }
	rest := text
	var left *fakeArena
	func() {
		defer func() {
			if r := recover(); r != nil {
				_ = r.(kill)
				left = arena.killed()
			}
		}()
		l := newLines(cfg, defaultPipe, handler)
		for len(rest) > 0 {
			space := l.space()
			n := copy(space[:min(step, len(space))], rest)
			rest = rest[n:]
			pass() // inside read(2): the kernel has copied
			l.fed(n, t0)
			pass()
			if w, ok := l.kept.window.(*fakeWindow); ok {
				w.old = len(rest)%3 == 0
			}
			l.drained(n)
		}
		l.finish(t0)
	}()
	if left == nil {
		return out.String(), false
	}
	passed = moment // no other kill
	arena = left
	l := newLines(cfg, defaultPipe, handler)
	for _, w := range left.windows[:len(left.windows):len(left.windows)] {
		f, err := OpenLeft(w, cfg, handler)
		if err != nil {
			t.Fatal(err)
		}
		f.Lines(t0)
		if resume {
			(&Reader{lines: l}).Resume(f)
		} else {
			f.Finish(t0)
		}
	}
	for len(rest) > 0 {
		n := copy(l.space()[:min(step, len(l.space()))], rest)
		rest = rest[n:]
		l.fed(n, t0)
	}
	l.finish(t0)
	for _, w := range append(left.windows, arena.windows...) {
		if !w.closed {
			t.Error("a window is not closed")
		}
	}
	return out.String(), true
}

// Wherever a reader is killed, each byte is handed out once and in order.
func TestKillOfReader(t *testing.T) {
	long := strings.Repeat("x", 3*minBuffer)
	texts := map[string]string{
		"short lines": strings.Repeat("a line\n", 40) + "the last",
		"long lines":  strings.Repeat(strings.Repeat("y", 30_000)+"\n", 8),
		"grows":       "first\n" + long + "\nlast\n",
		"CR LF":       strings.Repeat("a\r\nbc\r\n", 30),
		"records":     "before\n" + strings.Repeat("[1\n[2\na\nb\n[3\n"+x(60)+"\nc\n", 6) + "d",
		"long record": "[1\n" + strings.Repeat(x(999)+"\n", 70) + "[2\nlast\n",
		// A NUL that is the end of a read cannot be told from what was not read.
		"zeros within": strings.Repeat("a\x00\x00b\n", 20),
	}
	for name, text := range texts {
		for _, cfg := range []LineConfig{{}, {MaxLine: 50_000}, {MaxLine: 4}, {TrimCR: true}, joining(0), joining(50)} {
			if strings.Contains(name, "record") != (cfg.Start != nil) {
				continue
			}
			for _, step := range []int{5, 7000, maxRead} {
				if len(text)/step > 2000 || cfg.MaxLine > 0 && cfg.MaxLine <= 50 && len(text) > 1000 {
					continue
				}
				for _, resume := range []bool{true, false} {
					if cfg.TrimCR && !resume {
						continue // between CR and LF the pipe has ended: that CR stays
					}
					testKills(t, fmt.Sprintf("%s, %d at most, read by %d, resumed %v", name, cfg.MaxLine, step, resume), cfg, text, step, resume)
				}
			}
		}
	}
}

func testKills(t *testing.T, name string, cfg LineConfig, text string, step int, resume bool) {
	t.Helper()
	want := text
	if cfg.TrimCR {
		want = strings.ReplaceAll(text, "\r\n", "\n")
	}
	records := resume && cfg.Start != nil // they must be the same too
	if records {
		if want, _ = crash(t, cfg, text, step, 0, resume); unmarked.Replace(want) != text {
			t.Fatalf("%s: not killed: %.200q", name, want)
		}
	}
	for moment, killed := 1, true; killed; moment += 1 + moment/50 {
		var got string
		got, killed = crash(t, cfg, text, step, moment, resume)
		if !records {
			got = unmarked.Replace(got)
		}
		if got != want {
			t.Fatalf("%s: killed at moment %d: %q, want %q", name, moment, tail(got), tail(want))
		}
	}
}

// Without room for a larger window a long line goes out in pieces, as it does
// without windows.
func TestWindowRefused(t *testing.T) {
	arena := &fakeArena{room: 1}
	var got records
	l := newLines(LineConfig{Window: arena.take}, defaultPipe, got.take)
	feed(l, x(100_000)+"\n", 1000)
	l.finish(t0)
	if string(got.text) != x(100_000)+"\n" || !arena.windows[0].closed {
		t.Errorf("%d bytes", len(got.text))
	}
	arena.room = 0
	l = newLines(LineConfig{Window: arena.take}, defaultPipe, got.take)
	l.space()
	if l.kept.window != nil || len(l.buf) != minBuffer {
		t.Error("without a window there is memory of the process")
	}
	got = records{}
	l.fed(copy(l.space(), "whole\nthe begin"), t0)
	arena.room = 1
	l.drained(15)
	left, err := OpenLeft(arena.killed().windows[0], LineConfig{}, got.take)
	if err != nil || l.kept.window == nil {
		t.Fatalf("there is room for a window: %v", err)
	}
	left.Finish(t0)
	feed(l, "ning\n", 3)
	l.finish(t0)
	got.expect(t, "whole\n", "the begin$", "the beginning\n")
}

// A window whose memory is wanted back is left for another with what is kept
// back; and one that holds nothing, when nothing comes.
func TestWindowGivenBack(t *testing.T) {
	arena := &fakeArena{room: 4}
	var got records
	l := newLines(LineConfig{Window: arena.take}, defaultPipe, got.take)
	l.space()
	if l.drained(0); !arena.windows[0].closed {
		t.Error("a pipe that nothing comes of has a window")
	}
	arena.windows = nil
	l.fed(copy(l.space(), "whole\nthe begin"), t0)
	for range 2 * quietDrains {
		l.drained(0)
	}
	first := arena.windows[0]
	if first.closed {
		t.Error("a window is closed that holds the beginning of a line")
	}
	first.old = true
	l.drained(0)
	if !first.closed || len(arena.windows) != 2 {
		t.Error("an old window is not left")
	}
	l.fed(copy(l.space(), "ning\n"), t0)
	l.drained(5)
	for range quietDrains {
		if arena.windows[1].closed {
			t.Error("a window is closed while lines come")
		}
		l.drained(0)
	}
	if !arena.windows[1].closed {
		t.Error("an idle pipe has a window")
	}
	l.fed(copy(l.space(), "last\n"), t0)
	l.finish(t0)
	got.expect(t, "whole\n", "the beginning\n", "last\n")
}

// Where there is no room for a window, the rest of a line that was left behind
// is joined with what comes all the same.
func TestResumeWithoutRoom(t *testing.T) {
	for _, room := range []int{0, 1} { // none; for the reader's first, not for one to resume in
		arena := &fakeArena{room: -1}
		l := newLines(LineConfig{Window: arena.take}, defaultPipe, func(Block) {})
		n := copy(l.space(), "whole\nthe begin")
		l.fed(n, t0)
		w := arena.killed().windows[0]

		next := &fakeArena{room: room}
		var got records
		cfg := LineConfig{Window: next.take}
		f, err := OpenLeft(w, cfg, got.take)
		if err != nil {
			t.Fatal(err)
		}
		f.Lines(t0)
		r := &Reader{lines: newLines(cfg, defaultPipe, got.take)}
		r.Resume(f)
		feed(r.lines, "ning\n", 3)
		r.lines.finish(t0)
		if got.expect(t, "the beginning\n"); !w.closed {
			t.Error("the window that was left is not closed")
		}
	}
}

// A window that is damaged is refused or handed out as it is, and nothing
// outside it is touched.
func FuzzOpenLeft(f *testing.F) {
	arena := &fakeArena{room: -1}
	l := newLines(LineConfig{Window: arena.take}, defaultPipe, func(Block) {})
	copy(l.space(), "a line\nanother")
	good := arena.windows[0].memory[:200]
	f.Add(bytes.Clone(good))
	l.fed(14, t0)
	f.Add(bytes.Clone(good))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, memory []byte) {
		w := &fakeWindow{arena: &fakeArena{}, memory: memory}
		total := 0
		left, err := OpenLeft(w, LineConfig{}, func(b Block) { total += len(b.Text) })
		if err != nil {
			return
		}
		HoldsText(w)
		left.Lines(time.Now())
		left.Finish(time.Now())
		if total > len(memory) {
			t.Errorf("%d bytes out of %d", total, len(memory))
		}
	})
}

func tail(s string) string { return s[max(0, len(s)-200):] }
