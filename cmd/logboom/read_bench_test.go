package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"logboom/gzipwriter"
)

// benchText is how much text the file has that is searched, bytes.
const benchText = 1 << 30

// BenchmarkRead compares the reader commands with what one types today, each a
// process of its own, on a day's access log of 1 GiB: in members of 256 KiB,
// and in those of a second, as the default flush makes them. Times are the
// shortest of the rounds.
func BenchmarkRead(b *testing.B) {
	path, err := binary()
	if err != nil {
		b.Fatal(err)
	}
	for _, shape := range []struct {
		name    string
		members int
	}{{"256KiB", benchText / (256 << 10)}, {"second", 86400}} {
		name := dayOfLog(b, shape.members)
		day := epoch.Truncate(24 * time.Hour)
		since, until := day.Add(14*time.Hour), day.Add(14*time.Hour+5*time.Minute)
		const stamp = "[02/Jan/2006:15:04:05"
		awk := fmt.Sprintf(`zcat %q | awk '$4 >= %q && $4 <= %q'`, name, since.Format(stamp), until.Format(stamp))
		b.Run("cat/"+shape.name, func(b *testing.B) {
			compare(b, exec.Command("sh", "-c", awk),
				exec.Command(path, "cat", "--since", since.Format(time.RFC3339), "--until", until.Format(time.RFC3339), name))
		})
		b.Run("tail/"+shape.name, func(b *testing.B) {
			compare(b, exec.Command("sh", "-c", fmt.Sprintf("zcat %q | tail -n 100", name)),
				exec.Command(path, "tail", "-n", "100", name))
		})
	}
}

// compare runs both, and reports how much longer the first takes. What it
// gives out must be in what the second does, in one piece.
func compare(b *testing.B, old, ours *exec.Cmd) {
	run := func(c *exec.Cmd) (text []byte, took time.Duration) {
		again := exec.Command(c.Path, c.Args[1:]...)
		start := time.Now()
		text, err := again.Output()
		if err != nil {
			b.Fatal(err)
		}
		return text, time.Since(start)
	}
	oldBest, best := time.Hour, time.Hour
	for b.Loop() {
		oldText, took := run(old)
		oldBest = min(oldBest, took)
		for range 5 {
			text, took := run(ours)
			best = min(best, took)
			if len(oldText) == 0 || !bytes.Contains(text, oldText) {
				b.Fatalf("%d bytes, but %v gives %d others", len(text), old.Args, len(oldText))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of both together: says nothing
	b.ReportMetric(oldBest.Seconds()*1e3, "zcat-ms")
	b.ReportMetric(best.Seconds()*1e3, "logboom-ms")
	b.ReportMetric(float64(oldBest)/float64(best), "times-faster")
}

// dayOfLog makes a file of benchText of access log, spread evenly over a day.
func dayOfLog(b *testing.B, members int) string {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "access.log.gz"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w, err := gzipwriter.NewWriter(1)
	if err != nil {
		b.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	day := epoch.Truncate(24 * time.Hour)
	step := 24 * time.Hour / time.Duration(members)
	var text bytes.Buffer
	for i := range members {
		text.Reset()
		first := day.Add(time.Duration(i) * step)
		lines := uint32(0)
		for ; text.Len() < benchText/members; lines++ {
			at := first.Add(step * time.Duration(text.Len()) / (benchText / time.Duration(members)))
			fmt.Fprintf(&text, "10.%d.%d.%d - - [%s] \"GET /api/v1/orders/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.0.0 Safari/537.36\"\n",
				rnd.IntN(256), rnd.IntN(256), rnd.IntN(256), at.Format("02/Jan/2006:15:04:05 -0700"), rnd.IntN(1e6), rnd.IntN(1e5), 100+rnd.IntN(30))
		}
		m, err := w.Member(text.Bytes(), gzipwriter.Info{
			Messages: lines, First: first.UnixNano(), Last: first.Add(step).UnixNano() - 1, Arena: 1, Sequence: uint64(i),
		})
		if err == nil {
			_, err = f.Write(m)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return f.Name()
}
