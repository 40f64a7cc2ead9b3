package buffer

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Several sources fill a buffer whose memory is short, waiting for room, and
// one sink empties it. All that each wrote comes out, in its order.
func TestConcurrent(t *testing.T) {
	const sources, messages = 4, 3000
	b := newBuffer(t, 5, Limits{100, 2 * PageSize, 2 * time.Millisecond})
	var wg sync.WaitGroup
	for i := range sources {
		wg.Go(func() { fill(b, fmt.Sprint("source", i), i%2 == 0, messages) })
	}
	go func() { wg.Wait(); b.Close() }()
	next := make(map[string]int) // by key: the number of the next message
	check := func(bt *Batch) {
		for line := range bytes.Lines(bt.Bytes()) {
			want := message(bt.Key, next[bt.Key])
			if string(line) != want {
				t.Fatalf("%s: got %q, want %q", bt.Key, line, want)
			}
			next[bt.Key]++
		}
	}
	for {
		bt, closed := b.Next()
		switch {
		case bt != nil:
			check(bt)
			b.Done(bt, 0, "")
		case closed:
			if s := b.Stats(); s.Accepted != sources*messages || s.Delivered != s.Accepted {
				t.Errorf("%+v", s)
			}
			return
		default:
			select {
			case <-b.Ready():
			case <-time.After(10 * time.Second):
				t.Fatal("nothing comes out for 10 s")
			}
		}
	}
}

// message is the n-th message of a source, with its LF.
func message(source string, n int) string {
	return fmt.Sprintf("%s %d %s\n", source, n, strings.Repeat("x", n*37%700))
}

// fill appends messages one by one, or as blocks of lines, and waits for room
// where there is no memory.
func fill(b *Buffer, key string, blocks bool, messages int) {
	for n := 0; n < messages; {
		lines, text := 1, message(key, n)
		for ; blocks && lines < 10 && n+lines < messages; lines++ {
			text += message(key, n+lines)
		}
		for len(text) > 0 {
			room := b.Room()
			b.Begin()
			took, size := 0, 0
			if blocks {
				took, size = b.AppendLines([]byte(key), []byte(text), lines, time.Now())
			} else if b.Append([]byte(key), []byte(text), false, time.Now()) {
				took, size = 1, len(text)
			}
			b.End()
			n, lines, text = n+took, lines-took, text[size:]
			if len(text) > 0 {
				<-room
			}
		}
	}
}
