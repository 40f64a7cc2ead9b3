package proc

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// raceEnabled is set by the race build, where allocations are not the same.
var raceEnabled bool

var t0 = time.Unix(1_700_000_000, 0)

// feed gives text to l in reads of at most step bytes.
func feed(l *lines, text string, step int) {
	for len(text) > 0 {
		space := l.space()
		n := copy(space[:min(step, len(space))], text)
		text = text[n:]
		l.fed(n, t0)
	}
}

func x(n int) string { return strings.Repeat("x", n) }

func TestLines(t *testing.T) {
	tests := []struct {
		name  string
		cfg   LineConfig
		input string
		want  []string
	}{
		{name: "nothing"},
		{name: "whole lines", input: "a\nbc\n\nd\n", want: []string{"a\n", "bc\n", "\n", "d\n"}},
		{name: "PI12, last line without LF", input: "a\nlast words", want: []string{"a\n", "last words$"}},
		{name: "PI05", input: x(100_000) + "\n", want: []string{x(100_000) + "\n"}},
		{
			name:  "PI07",
			input: x(16_383) + "\n" + x(16_384) + "\n" + x(16_385) + "\n" + x(65_536) + "\n",
			want:  []string{x(16_383) + "\n", x(16_384) + "\n", x(16_385) + "\n", x(65_536) + "\n"},
		},
		{
			name:  "PI08",
			cfg:   LineConfig{MaxLine: 65_536},
			input: "a\n" + x(150_000) + "\nb\n",
			want:  []string{"a\n", "…" + x(65_536), "…" + x(65_536), "…" + x(18_928) + "\n", "b\n"},
		},
		{name: "PI09", input: "before\n" + strings.Repeat("fail", 17_500) + "\nafter\n",
			want: []string{"before\n", strings.Repeat("fail", 17_500) + "\n", "after\n"}},
		{name: "exactly the limit", cfg: LineConfig{MaxLine: 3}, input: "abc\nabc\nabcd\nabcdef\nabc",
			want: []string{"abc\n", "abc\n", "…abc", "…d\n", "…abc", "…def\n", "abc$"}},
		{name: "too long and without LF", cfg: LineConfig{MaxLine: 3}, input: "abcdefg",
			want: []string{"…abc", "…def", "…g"}},
		{name: "every byte is kept", input: "\x00\t\r\n\xff\xfe\x80\n\r\r\n", want: []string{"\x00\t\r\n", "\xff\xfe\x80\n", "\r\r\n"}},
		{name: "trim CR", cfg: LineConfig{TrimCR: true}, input: "a\r\nb\nc\r\r\n\r\nd\re\r\nf\r",
			want: []string{"a\n", "b\n", "c\r\n", "\n", "d\re\n", "f\r$"}},
		{name: "trim CR at the limit", cfg: LineConfig{MaxLine: 3, TrimCR: true}, input: "ab\r\nabc\r\nab\rc\r\n",
			want: []string{"ab\n", "…abc", "…\n", "…ab\r", "…c\n"}},
	}
	for _, tt := range tests {
		for _, step := range []int{1, 2, 3, 7, 4096, 1 << 20} {
			if step < 3 && len(tt.input) > 100_000 {
				continue // slow, and nothing new
			}
			var got records
			l := newLines(tt.cfg, defaultPipe, got.take)
			feed(l, tt.input, step)
			l.finish(t0)
			t.Run(tt.name, func(t *testing.T) { got.expect(t, tt.want...) })
		}
	}
}

// A whole read goes out in one block, up to its last LF.
func TestLinesOneBlock(t *testing.T) {
	var blocks []int
	l := newLines(LineConfig{}, defaultPipe, func(b Block) { blocks = append(blocks, b.Lines, len(b.Text)) })
	feed(l, strings.Repeat("line\n", 1000)+"rest", 1<<20)
	feed(l, " of it\n", 1<<20)
	if want := []int{1000, 5000, 1, 11}; !slices.Equal(blocks, want) {
		t.Errorf("lines and bytes of the blocks: %v, want %v", blocks, want)
	}
}

func TestLinesExpire(t *testing.T) {
	var got records
	l := newLines(LineConfig{PartialTimeout: time.Second, TrimCR: true}, defaultPipe, got.take)
	if d := l.expire(t0); d != 0 {
		t.Errorf("nothing is kept back, but for %v", d)
	}
	feed(l, "a\nprompt>", 100)
	if d := l.expire(t0.Add(300 * time.Millisecond)); d != 700*time.Millisecond {
		t.Errorf("kept back for %v more, want 700ms", d)
	}
	feed(l, "\r", 100) // later text does not renew the time of the first
	got.expect(t, "a\n")
	if d := l.expire(t0.Add(time.Second)); d != time.Second {
		t.Errorf("the CR may stay for %v, want 1s", d)
	}
	feed(l, "\nb", 100)
	got.expect(t, "a\n", "…prompt>", "…\n")
	l.expire(t0.Add(time.Minute))
	l.finish(t0)
	got.expect(t, "a\n", "…prompt>", "…\n", "…b", "…") // all of b's line is out, but not that it is over

	got = records{}
	l = newLines(LineConfig{}, defaultPipe, got.take)
	feed(l, "kept", 100)
	if d := l.expire(t0.Add(1000 * time.Hour)); d != 0 {
		t.Errorf("without a timeout, kept back for %v", d)
	}
	got.expect(t)
	l.finish(t0)
	got.expect(t, "kept$")
}

// The memory of a long line is reserved before it is used, and given back.
func TestLinesReserve(t *testing.T) {
	reserved, most := 0, 0
	cfg := LineConfig{
		MaxLine: 1 << 20,
		Reserve: func(n int) bool { reserved += n; most = max(most, reserved); return true },
		Release: func(n int) { reserved -= n },
	}
	var got records
	l := newLines(cfg, defaultPipe, got.take)
	line := x(1<<20) + "\n"
	feed(l, "a\n"+line, 30_000)
	got.expect(t, "a\n", line)
	if reserved != len(l.buf)-minBuffer || most < 1<<20-minBuffer || most > 1<<20+maxRead {
		t.Errorf("%d bytes reserved, %d at most, for a buffer of %d", reserved, most, len(l.buf))
	}
	for range quietDrains {
		l.drained(10)
	}
	if reserved != 0 || len(l.buf) != minBuffer {
		t.Errorf("when it is quiet: %d bytes reserved, for a buffer of %d", reserved, len(l.buf))
	}
	feed(l, line[:200_000], 30_000)
	l.finish(t0)
	got.expect(t, "a\n", line, line[:200_000]+"$")
	if reserved != 0 {
		t.Errorf("after the end: %d bytes reserved", reserved)
	}
}

// Without memory a long line goes out in pieces, and nothing is lost.
func TestLinesReserveRefused(t *testing.T) {
	var got records
	l := newLines(LineConfig{MaxLine: 1 << 20, Reserve: func(int) bool { return false }}, 1<<20, got.take)
	line := x(150_000) + "\n"
	feed(l, line+"b\n", 40_000)
	got.expect(t, "…"+x(minBuffer), "…"+x(minBuffer), "…"+x(150_000-2*minBuffer)+"\n", "b\n")
	if len(l.buf) != minBuffer {
		t.Errorf("buffer of %d bytes", len(l.buf))
	}
}

// Under load the buffer grows to what one read shall bring.
func TestLinesGrowUnderLoad(t *testing.T) {
	l := newLines(LineConfig{}, 1<<20, func(Block) {})
	feed(l, strings.Repeat("line\n", 200_000), 1<<20)
	if len(l.buf) != maxRead {
		t.Errorf("buffer of %d bytes, want %d", len(l.buf), maxRead)
	}
}

// A long line that comes in small reads is searched and moved once.
func TestLinesLinear(t *testing.T) {
	l := newLines(LineConfig{MaxLine: 16 << 20}, defaultPipe, func(Block) {})
	start := time.Now()
	feed(l, x(16<<20), 64) // 262,144 reads: quadratic work would be two trillion bytes
	if d := time.Since(start); d > patience {
		t.Errorf("took %v", d)
	}
}

func TestLinesAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are not counted under the race detector")
	}
	lines := 0
	l := newLines(LineConfig{TrimCR: true, PartialTimeout: time.Second}, defaultPipe, func(b Block) { lines += b.Lines })
	text := []byte(strings.Repeat("a line of some length\r\n", 100) + "rest")
	if n := testing.AllocsPerRun(100, func() {
		l.fed(copy(l.space(), text), t0)
		l.expire(t0)
		l.drained(len(text))
	}); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
	if lines != 101*100 {
		t.Errorf("%d lines", lines)
	}
}

// FuzzLines: whatever the reads, the records are those of the whole input.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\r\r\nlast"), []byte{1, 0, 5}, uint8(3), true)
	f.Add([]byte("no line feed at all"), []byte{2}, uint8(4), false)
	f.Add([]byte("\n\n\n\x00\xff\n"), []byte{255}, uint8(1), false)
	f.Fuzz(func(t *testing.T, input, steps []byte, maxLine uint8, trim bool) {
		cfg := LineConfig{MaxLine: int(maxLine) + 1, TrimCR: trim, PartialTimeout: time.Second}
		var got, timed records
		l, late := newLines(cfg, defaultPipe, got.take), newLines(cfg, defaultPipe, timed.take)
		for rest, i := input, 0; len(rest) > 0; i++ {
			step := 1
			if len(steps) > 0 {
				step = int(steps[i%len(steps)]) + 1
			}
			n := copy(l.space()[:min(step, minBuffer/2)], rest)
			copy(late.space(), rest[:n])
			rest = rest[n:]
			l.fed(n, t0)
			late.fed(n, t0)
			if step%3 == 0 {
				late.expire(t0.Add(time.Hour))
			}
		}
		l.finish(t0)
		late.finish(t0)
		got.expect(t, reference(string(input), cfg)...)
		if timed.bad != "" {
			t.Error(timed.bad)
		}
		want := input
		if trim {
			want = bytes.ReplaceAll(input, []byte("\r\n"), []byte("\n"))
		}
		if !bytes.Equal(got.text, want) || !bytes.Equal(timed.text, want) {
			t.Errorf("%q, with timeouts %q: want %q", got.text, timed.text, want)
		}
	})
}

// reference is what [records] must hold after input, the simple way.
func reference(input string, cfg LineConfig) (want []string) {
	for line := range strings.Lines(input) {
		mark := ""
		for len(strings.TrimSuffix(line, "\n")) > cfg.MaxLine {
			want = append(want, "…"+line[:cfg.MaxLine])
			line, mark = line[cfg.MaxLine:], "…"
		}
		if trimmed, ok := strings.CutSuffix(line, "\r\n"); ok && cfg.TrimCR {
			line = trimmed + "\n"
		}
		if mark == "" && !strings.HasSuffix(line, "\n") {
			line += "$"
		}
		want = append(want, mark+line)
	}
	return want
}
