package deflate

import (
	"bytes"
	stdflate "compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
)

// lines is n bytes of lines of a web server's log.
func lines(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	words := strings.Fields("api users orders cart img static search login blog feed admin items")
	agents := []string{"Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64", "iPhone; CPU iPhone OS 17_4 like Mac OS X"}
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "10.%d.%d.%d - - [15/Mar/2026:10:%02d:%02d +0000] \"GET /%s/%s/%d HTTP/1.1\" %d %d \"-\" \"Mozilla/5.0 (%s) AppleWebKit/537.36\"\n",
			r.IntN(256), r.IntN(256), r.IntN(256), i/3000%60, i/50%60, words[r.IntN(len(words))], words[r.IntN(len(words))],
			r.IntN(1_000_000), 200+r.IntN(4)*100, r.IntN(100_000), agents[r.IntN(len(agents))])
	}
	return b.Bytes()[:n]
}

func randomBytes(seed uint64, n, values int) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(values))
	}
	return b
}

// texts are of each kind, and of lengths about those at which something
// changes.
func texts() map[string][]byte {
	texts := map[string][]byte{}
	for _, n := range []int{0, 1, 2, 3, 7, 8, 9, ahead - 1, ahead, ahead + 1, ahead + 2, 100, 1000, maxStored - 1, maxStored, maxStored + 1,
		maxDistance - 1, maxDistance, maxDistance + 1, maxDistance + ahead, windowLen - ahead, windowLen - 1, windowLen, windowLen + 1, windowLen + ahead,
		windowLen + maxDistance, 1_000_000} {
		texts[fmt.Sprintf("%d bytes of lines", n)] = lines(1, n)
		texts[fmt.Sprintf("%d random bytes", n)] = randomBytes(1, n, 256)
		texts[fmt.Sprintf("%d zeros", n)] = make([]byte, n)
	}
	for _, values := range []int{2, 3, 16, 64, 200} {
		texts[fmt.Sprintf("%d values", values)] = randomBytes(2, 300_000, values)
	}
	for _, period := range []int{1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 257, 258, 259, 260, 261, 10_000, maxDistance - 1, maxDistance, maxDistance + 1, maxDistance + 5, 65_535, 65_536, 65_537} {
		texts[fmt.Sprintf("period %d", period)] = bytes.Repeat(randomBytes(uint64(period), period, 256), 600_000/period+1)
	}
	for length := 1; length < 600; length++ {
		// A match of this length between bytes that were not there before.
		text := slices.Concat(randomBytes(4, 1000, 256), randomBytes(5, 50, 256), randomBytes(4, 1000, 256)[100:100+length], randomBytes(6, 50, 256))
		texts[fmt.Sprintf("match of %d", length)] = text
	}
	// Random bytes are stored, and lines before and behind them are not.
	texts["lines, random bytes, lines"] = slices.Concat(lines(1, 200_000), randomBytes(1, 200_000, 256), lines(2, 200_000))
	return texts
}

// inflated reads a stream with two readers that are not ours.
func inflated(t testing.TB, stream []byte) []byte {
	t.Helper()
	in := bytes.NewReader(stream)
	text, err := io.ReadAll(stdflate.NewReader(in))
	if err != nil {
		t.Fatalf("compress/flate: %v", err)
	}
	if in.Len() > 0 {
		t.Fatalf("%d bytes of %d are behind the end of the stream", in.Len(), len(stream))
	}
	other, err := io.ReadAll(flate.NewReader(bytes.NewReader(stream)))
	if err != nil {
		t.Fatalf("klauspost/compress: %v", err)
	}
	if !bytes.Equal(text, other) {
		t.Fatal("two readers differ")
	}
	return text
}

func TestAppend(t *testing.T) {
	e := NewEncoder()
	var dst []byte
	for name, text := range texts() {
		dst = e.Append(append(dst[:0], "before"...), text)
		if !bytes.HasPrefix(dst, []byte("before")) {
			t.Fatalf("%s: what was in dst is lost", name)
		}
		stream := dst[len("before"):]
		if got := inflated(t, stream); !bytes.Equal(got, text) {
			t.Fatalf("%s: another text comes out", name)
		}
		// At worst it is stored, in blocks of as much as fills the tokens.
		if most := len(text) + 5*(len(text)/(2*(maxTokens-maxMatch))+2); len(stream) > most {
			t.Errorf("%s: %d bytes became %d", name, len(text), len(stream))
		}
	}
}

// TestSmall has what is cheap to write said cheaply.
func TestSmall(t *testing.T) {
	for _, test := range []struct {
		name string
		text []byte
		most int
	}{
		{"nothing", nil, 2},
		{"a line", []byte("GET / 200\n"), 12},
		{"a million zeros", make([]byte, 1_000_000), 1200},
		{"10,000 bytes again and again", bytes.Repeat(randomBytes(1, 10_000, 256), 50), 14_500},
		{"over the window", bytes.Repeat(randomBytes(1, 30_000, 256), 50), 44_000},
	} {
		if n := len(NewEncoder().Append(nil, test.text)); n > test.most {
			t.Errorf("%s: %d bytes, not %d", test.name, n, test.most)
		}
	}
}

// TestRatio has lines made smaller than by the library's level 1.
func TestRatio(t *testing.T) {
	text := lines(7, 1<<20)
	var other bytes.Buffer
	w, err := flate.NewWriter(&other, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(text)
	w.Close()
	if n := len(NewEncoder().Append(nil, text)); n > other.Len() {
		t.Errorf("%d bytes, and the library's level 1 makes %d", n, other.Len())
	}
}

// TestOutputDependsOnTextAlone has the same stream made of a text whatever the
// encoder had before.
func TestOutputDependsOnTextAlone(t *testing.T) {
	all := texts()
	used := NewEncoder()
	for _, name := range []string{"lines, random bytes, lines", "period 65537", "25 bytes of lines", "1000 bytes of lines", "65536 random bytes", "16 values", "65537 bytes of lines", "0 zeros"} {
		text, found := all[name]
		if !found {
			t.Fatalf("no text %q", name)
		}
		if !bytes.Equal(used.Append(nil, text), NewEncoder().Append(nil, text)) {
			t.Errorf("%s: a used encoder makes another stream", name)
		}
	}
	for seed := range uint64(200) {
		text := lines(seed, 50_000)
		if !bytes.Equal(used.Append(nil, text), NewEncoder().Append(nil, text)) {
			t.Errorf("lines %d: a used encoder makes another stream", seed)
		}
	}
	// The match of a's ends with the window, and the table learns a position
	// behind which the earlier text would be.
	earlier := bytes.Repeat([]byte("b"), 33_000)
	copy(earlier[maxDistance:], "GHIJK")
	text := []byte("0123456789aGHIJK#####" + strings.Repeat("a", 32_749) + "=+aGHIJK;:,.-_ABCDEFGLMNOPQRSTUVWXYZ")
	used.Append(nil, earlier)
	if !bytes.Equal(used.Append(nil, text), NewEncoder().Append(nil, text)) {
		t.Error("what the window held before is learnt")
	}
}

// TestAppendAllocatesNothing once dst has the room.
func TestAppendAllocatesNothing(t *testing.T) {
	e, text := NewEncoder(), lines(1, 300_000)
	dst := e.Append(nil, text)
	if n := testing.AllocsPerRun(5, func() { dst = e.Append(dst[:0], text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzAppend(f *testing.F) {
	f.Add([]byte("one line\none line\none more line\n"), 1, 0)
	f.Add(lines(3, 2000), 300, 5)
	f.Add(randomBytes(1, 3000, 256), 200, 700)
	f.Add([]byte{0}, 70_000, 0)
	e := NewEncoder()
	f.Fuzz(func(t *testing.T, piece []byte, times, shift int) {
		// A short input becomes a long text: repeated, each time without a few
		// more of its first bytes.
		var text []byte
		for i := 0; i < times && len(text) < 100_000; i++ {
			cut := 0
			if len(piece) > 0 {
				cut = i * (shift & 0xffff) % len(piece)
			}
			text = append(text, piece[cut:]...)
		}
		if got := inflated(t, e.Append(nil, text)); !bytes.Equal(got, text) {
			t.Error("another text comes out")
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{200, 20 << 10, 256 << 10} {
		for name, text := range map[string][]byte{"lines": lines(1, n), "random": randomBytes(1, n, 256)} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				e := NewEncoder()
				var dst []byte
				b.SetBytes(int64(n))
				for b.Loop() {
					dst = e.Append(dst[:0], text)
				}
				b.ReportMetric(float64(n)/float64(len(dst)), "ratio")
			})
		}
	}
}
