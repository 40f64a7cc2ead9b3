package buffer

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// The path of a message allocates nothing.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := newBuffer(t, 1<<10, Limits{1 << 30, 1 << 20, long})
	key, other, text := []byte("/var/log/a.gz"), []byte("/var/log/b.gz"), bytes.Repeat([]byte("x"), 99)
	block := bytes.Repeat([]byte("a line\n"), 10)
	now := time.Now()
	b.share.Resize(b.share.arena.Size() / 2)
	w := b.share.arena.NewWindow("source", "", PageSize)
	w.Begin()
	b.Begin()
	b.Append(other, text, true, now)
	b.Drop([]byte("dropped"), 1, "memory full")
	b.End()
	for name, f := range map[string]func(){
		"Append":       func() { b.Append(key, text, true, now) },
		"Append, note": func() { b.Keep(w.Note("sink")); b.Append(key, text, true, now) },
		"Append, keys": func() { b.Append(key, text, true, now); b.Append(other, text, true, now) },
		"AppendLines":  func() { b.AppendLines(key, block, 10, now) },
		"Gap":          func() { b.Gap(key) },
		"Drop":         func() { b.Drop([]byte("dropped"), 1, "memory full") },
	} {
		if n := testing.AllocsPerRun(1000, func() { b.Begin(); f(); b.End() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// benchmark appends with a sink that takes batches at once: on memory that ends
// with the process, and in a file that outlives it.
func benchmark(b *testing.B, bytes int, f func(*Buffer, time.Time)) {
	const size = 16 << 20
	arenas := map[string]func(dir string) (*Arena, error){
		"heap": func(string) (*Arena, error) { return NewArena(size) },
		"file": func(dir string) (*Arena, error) { return CreateArena(dir, size, 1) },
	}
	for _, kind := range []string{"heap", "file"} {
		b.Run(kind, func(b *testing.B) {
			dir, err := os.MkdirTemp("/dev/shm", "logboom")
			if err != nil {
				b.Skip("no tmpfs:", err)
			}
			defer os.RemoveAll(dir)
			a, err := arenas[kind](dir)
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			buf := New("sink", a.Share(size), Limits{10_000, 256 << 10, long})
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			now := time.Now()
			for b.Loop() {
				buf.Begin()
				f(buf, now)
				buf.End()
				deliver(buf)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	key, text := []byte("/var/log/logboom/access.log.gz"), bytes.Repeat([]byte("x"), 250)
	benchmark(b, len(text), func(buf *Buffer, now time.Time) { buf.Append(key, text, true, now) })
}

func BenchmarkAppendLines(b *testing.B) {
	key, line := []byte("/var/log/logboom/access.log.gz"), append(bytes.Repeat([]byte("x"), 119), '\n')
	lines := 64 << 10 / len(line)
	text := bytes.Repeat(line, lines)
	benchmark(b, len(text), func(buf *Buffer, now time.Time) { buf.AppendLines(key, text, lines, now) })
}
