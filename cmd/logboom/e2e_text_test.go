package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// readGzip returns the text of a gzip file, read by the standard library and
// by gzip(1): whole, and nothing behind it.
func readGzip(t *testing.T, paths ...string) []byte {
	t.Helper()
	var text []byte
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		one, err := inflate(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if out, err := exec.Command("gzip", "-t", path).CombinedOutput(); err != nil {
			t.Errorf("gzip -t: %v: %s", err, out)
		}
		text = append(text, one...)
	}
	return text
}

func inflate(r io.Reader) ([]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// readFile returns a file's bytes.
func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sorted are the lines of a text, in an order that is their own.
func sorted(text []byte) []string {
	lines := slices.Collect(strings.Lines(string(text)))
	slices.Sort(lines)
	return lines
}

// wantSameLines compares two texts line by line, whatever their order.
func wantSameLines(t *testing.T, got, want []byte) {
	t.Helper()
	g, w := sorted(got), sorted(want)
	if slices.Equal(g, w) {
		return
	}
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("%d lines, want %d; sorted line %d: %q, want %q", len(g), len(w), i, g[i], w[i])
		}
	}
	t.Fatalf("%d lines, want %d", len(g), len(w))
}

// membersOf counts the members of a gzip file.
func membersOf(t *testing.T, path string) (n int) {
	t.Helper()
	r := bytes.NewReader(readFile(t, path))
	z, err := gzip.NewReader(r)
	for ; err == nil; err = z.Reset(r) {
		z.Multistream(false)
		size, err := io.Copy(io.Discard, z)
		if err != nil || size == 0 {
			t.Fatalf("member %d: %d bytes of text, %v", n, size, err)
		}
		n++
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("after member %d: %v", n, err)
	}
	return n
}

// readAllTheTime reads a gzip file over and over, as zcat and gzip -t would
// while it grows, until the function that it returns is called, which returns
// how often it did.
//
// A write(2) can be seen in part while it runs: the kernel lets a file grow
// page by page. Who comes to its end within these microseconds finds the last
// member torn, or a file just made empty, but not if he looks again.
func readAllTheTime(t *testing.T, path string) (stop func() int) {
	done, times := make(chan struct{}), 0
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := os.Stat(path); err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			for _, args := range [][]string{{"zcat", path}, {"gzip", "-t", path}} {
				err := runs(args)
				for look := 0; err != nil && look < 5; look++ {
					time.Sleep(10 * time.Millisecond) // the writer may have lost the processor within its write
					err = runs(args)
				}
				if err != nil {
					t.Errorf("%v while it grows: %v", args, err)
					return
				}
			}
			times++
		}
	})
	return func() int {
		close(done)
		reader.Wait()
		return times
	}
}

func runs(args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, &stderr)
	}
	return nil
}

// numbersOf are those of a sender's lines in a text, in their order there.
// A line that is not as numbered made it fails the test.
func numbersOf(t *testing.T, text []byte, sender string) []int {
	t.Helper()
	var numbers []int
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte(sender+" "))
		if !ok {
			continue
		}
		word, _, _ := bytes.Cut(rest, []byte(" "))
		n, err := strconv.Atoi(string(word))
		if err != nil || !bytes.Equal(line, numbered(nil, sender, n)) {
			t.Fatalf("a line is not whole: %q", line)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// numbered appends line n of a sender, with its LF. Lines differ in length.
func numbered(dst []byte, sender string, n int) []byte {
	dst = append(dst, sender...)
	dst = append(dst, ' ')
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, ' ')
	dst = append(dst, filler[:40+n*7%160]...)
	return append(dst, '\n')
}

var filler = strings.Repeat("0123456789abcdefghij\tklmnopqrstuvwxyz. ", 8)

// wantAll checks that a text holds the first n lines of a sender, each once
// and in order.
func wantAll(t *testing.T, text []byte, sender string, n int) {
	t.Helper()
	got := numbersOf(t, text, sender)
	for i, number := range got {
		if number != i {
			t.Fatalf("%s: line %d of %d is number %d (%d were sent)", sender, i, len(got), number, n)
		}
	}
	if len(got) != n {
		t.Errorf("%s: %d lines, want %d", sender, len(got), n)
	}
}

// wantInOrder checks that a text holds lines of a sender at most once each and
// in order, and returns how many.
func wantInOrder(t *testing.T, text []byte, sender string) int {
	t.Helper()
	got := numbersOf(t, text, sender)
	for i := 1; i < len(got); i++ {
		if got[i] <= got[i-1] {
			t.Fatalf("%s: number %d after %d", sender, got[i], got[i-1])
		}
	}
	return len(got)
}

// The host of a header is in a template's line once, with nginx's own header
// on a unix socket and without.
func TestHostOnce(t *testing.T) { // CF10
	d := startDaemon(t, prelude+`
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
sinks = ["out"]
`+plainSink+`template = "$host $program: $message"`)
	in := dial(t, "unixgram", d.path("in.sock"))
	for _, header := range []string{"<190>Mar 15 10:20:30 edge01 nginx: ", "<190>Mar 15 10:20:30 nginx: "} {
		if _, err := in.Write([]byte(header + "GET /")); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"edge01 nginx: GET /", localHost() + " nginx: GET /"}
	if got := d.lines("out.log", 2); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	d.stop()
}
