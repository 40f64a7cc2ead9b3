package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// joined is a handler that keeps what it is given, record by record, with "…"
// before a piece, and "+" before one that continues.
type joined []string

func (j *joined) take(b Block) {
	text := string(b.Text)
	switch {
	case b.Partial && b.Continues:
		*j = append(*j, "+"+text)
	case b.Partial:
		*j = append(*j, "…"+text)
	case b.Record || b.Last:
		*j = append(*j, text)
	default:
		*j = append(*j, slices.Collect(strings.Lines(text))...)
	}
	for i := range b.Text {
		b.Text[i] = 0xDB // it was borrowed
	}
}

func joining(max int) LineConfig {
	return LineConfig{MaxLine: max, Start: regexp.MustCompile(`^\[`), RecordTimeout: time.Second}
}

// PHP's stack traces and the like: a record is the same however its bytes come.
func TestJoin(t *testing.T) {
	for name, tt := range map[string]struct {
		max  int
		in   string
		want []string
	}{
		"nothing":                         {100, "", nil},
		"lines":                           {100, "[1\n[2\n[3\n", []string{"[1\n", "[2\n", "[3\n"}},
		"records":                         {100, "[1\n a\n\n[2\n b\n[3\n", []string{"[1\n a\n\n", "[2\n b\n", "[3\n"}},
		"no start":                        {100, "a\nb\n", []string{"a\nb\n"}},
		"before the first":                {100, "a\n[1\nb\n", []string{"a\n", "[1\nb\n"}},
		"an end without LF":               {100, "[1\na\nb", []string{"[1\na\nb"}},
		"a start without LF":              {100, "[1\na\n[2", []string{"[1\na\n", "[2"}},
		"too long":                        {10, "[12345\n6789\nabcdefghij\nk\n[2\n", []string{"…[12345\n", "+6789\n", "+abcdefghij\n", "+k\n", "[2\n"}},
		"just long enough":                {10, "[12345\n789\n[2\n", []string{"[12345\n789\n", "[2\n"}},
		"too long a line":                 {10, "[1\n0123456789AB\nc\n[2\n", []string{"[1\n", "…0123456789", "+AB\n", "c\n", "[2\n"}},
		"two too long":                    {10, "[12345\n6789\n[2\n[0123456789\n[3\n", []string{"…[12345\n", "+6789\n", "[2\n", "…[012345678", "+9\n", "[3\n"}},
		"a long line after a long record": {10, "[12345\n6789\n[0123456789\n", []string{"…[12345\n", "+6789\n", "…[012345678", "+9\n"}},
		"a long one that ends":            {4, "[1\nabc\n", []string{"…[1\n", "+abc\n"}},
	} {
		for step := 1; step < 30; step++ {
			var got joined
			l := newLines(joining(tt.max), defaultPipe, got.take)
			feed(l, tt.in, step)
			l.finish(t0)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s, %d bytes at a time:\n%q, want\n%q", name, step, got, tt.want)
				break
			}
		}
	}
}

// A record is given out when no line came to it for a while; the timeout of a
// line without LF is another.
func TestJoinExpire(t *testing.T) {
	var got joined
	cfg := joining(100)
	cfg.PartialTimeout = 5 * time.Second
	l := newLines(cfg, defaultPipe, got.take)
	if l.waits() {
		t.Error("nothing waits")
	}
	feed(l, "[1\na\nmore", 100)
	if d := l.expire(t0.Add(400 * time.Millisecond)); d != 600*time.Millisecond || !l.waits() || got != nil {
		t.Errorf("%v more, %q", d, got)
	}
	if d := l.expire(t0.Add(time.Second)); d != 4*time.Second || !slices.Equal(got, joined{"[1\na\n"}) {
		t.Errorf("%v more, %q", d, got)
	}
	if d := l.expire(t0.Add(5 * time.Second)); d != 0 || l.waits() || !slices.Equal(got, joined{"[1\na\n", "…more"}) {
		t.Errorf("%v more, %q", d, got)
	}
}

// What a record takes is reserved, and given back; refused, it goes out in
// pieces and nothing is lost.
func TestJoinMemory(t *testing.T) {
	for _, limit := range []int{0, 100_000, 1 << 20} {
		used, most := 0, 0
		cfg := joining(1 << 20)
		cfg.Reserve = func(n int) bool {
			if used+n > limit {
				return false
			}
			used += n
			most = max(most, used)
			return true
		}
		cfg.Release = func(n int) { used -= n }
		var text bytes.Buffer
		l := newLines(cfg, defaultPipe, func(b Block) { text.Write(b.Text) })
		in := "[1\n" + strings.Repeat(strings.Repeat("x", 99)+"\n", 2000)
		feed(l, in, 4096)
		l.finish(t0)
		if text.String() != in || used != 0 || most > limit || limit > 0 && most == 0 {
			t.Errorf("limit %d: %d of %d bytes came out, %d are reserved, at most %d were", limit, text.Len(), len(in), used, most)
		}
	}
}

// Records of one line go on in one block, without a copy of each.
func TestJoinAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are not counted under the race detector")
	}
	blocks := 0
	l := newLines(joining(1<<20), defaultPipe, func(Block) { blocks++ })
	text := strings.Repeat("[a line of a program\n", 1000)
	feed(l, text, len(text))
	blocks = 0
	if n := testing.AllocsPerRun(10, func() { feed(l, text, len(text)) }); n != 0 || blocks != 2*11 {
		t.Errorf("%v allocations, %d blocks", n, blocks)
	}
}

// A record without a follower comes out of a pipe by itself, in time.
func TestJoinTimeoutOfPipe(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	cfg := joining(1 << 20)
	cfg.RecordTimeout = 30 * time.Millisecond
	got := make(chan string, 10)
	pipe := &Pipe{fd: fds[0], name: "test", size: defaultPipe, owned: true}
	defer pipe.Close()
	r := NewReader(pipe, newPoller(t), cfg, func(b Block) { got <- string(b.Text) })
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		r.Run(stop)
	}()
	unix.Write(fds[1], []byte("[1\n#0 a\n#1 b\n"))
	select {
	case text := <-got:
		if text != "[1\n#0 a\n#1 b\n" {
			t.Errorf("%q", text)
		}
	case <-time.After(patience):
		t.Error("it is kept for ever")
	}
	close(stop)
	finishes(t, "the reader", done)
}

// Real logs of PHP: each record begins as Monolog writes it, and all the bytes
// are there.
func TestJoinSamples(t *testing.T) {
	files, _ := filepath.Glob("../../shared/data/php/*laravel*.log")
	if files == nil {
		t.Skip("the samples of PHP logs are not here")
	}
	records := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cfg := LineConfig{Start: regexp.MustCompile(`^\[\d{4}-\d\d-\d\d`), RecordTimeout: time.Second}
		var got joined
		l := newLines(cfg, defaultPipe, got.take)
		feed(l, string(text), 1000)
		l.finish(t0)
		if strings.Join(got, "") != string(text) {
			t.Errorf("%s: bytes were changed", file)
		}
		for i, record := range got {
			if i > 0 && !cfg.Start.MatchString(record) {
				t.Errorf("%s: record %d begins with %.60q", file, i, record)
			}
			records += strings.Count(record, "\n#")
		}
	}
	if records == 0 {
		t.Error("no record has a stack trace")
	}
}
