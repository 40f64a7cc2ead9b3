package buffer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// appendLines is AppendLines with the lines counted.
func appendLines(b *Buffer, text string) (lines, size int) {
	b.Begin()
	defer b.End()
	return b.AppendLines(nil, []byte(text), strings.Count(text, "\n"), time.Now())
}

// Where batches end in a block of lines: the same places as line by line.
func TestAppendLines(t *testing.T) {
	for _, tt := range []struct {
		name     string
		messages int
		bytes    int
		in       []string // blocks
		sealed   []string
		open     string
	}{
		{"none", 9, 100, []string{""}, nil, ""},
		{"all fit", 9, 100, []string{"a\nb\n", "c\n"}, nil, "a\nb\nc\n"},
		{"empty lines", 2, 100, []string{"\n\n\n"}, []string{"\n\n"}, "\n"},
		{"the number exactly", 2, 100, []string{"a\nb\n"}, []string{"a\nb\n"}, ""},
		{"over the number", 2, 100, []string{"a\nb\nc\nd\ne\n"}, []string{"a\nb\n", "c\nd\n"}, "e\n"},
		{"the number, from an open batch", 3, 100, []string{"a\n", "b\nc\nd\n"}, []string{"a\nb\nc\n"}, "d\n"},
		{"the size exactly", 9, 6, []string{"ab\ncd\n"}, []string{"ab\ncd\n"}, ""},
		{"a byte over the size", 9, 5, []string{"ab\ncd\n"}, []string{"ab\n"}, "cd\n"},
		{"a byte short of the size", 9, 7, []string{"ab\ncd\n"}, nil, "ab\ncd\n"},
		{"no room in the open batch", 9, 6, []string{"abc\n", "de\nf\n"}, []string{"abc\n"}, "de\nf\n"},
		{"a larger one first", 9, 4, []string{"larger\na\n"}, []string{"larger\n"}, "a\n"},
		{"a larger one last", 9, 4, []string{"a\nlarger\n"}, []string{"a\n", "larger\n"}, ""},
		{"a larger one amid", 9, 4, []string{"a\nlarger\nb\nc\n"}, []string{"a\n", "larger\n", "b\nc\n"}, ""},
		{"nothing but larger ones", 9, 1, []string{"a\n\nbc\n"}, []string{"a\n", "\n", "bc\n"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBuffer(t, 8, Limits{tt.messages, tt.bytes, long})
			for _, text := range tt.in {
				if n, size := appendLines(b, text); n != strings.Count(text, "\n") || size != len(text) {
					t.Errorf("took %d lines, %d bytes of %q", n, size, text)
				}
			}
			var open string
			if bt := b.open[""]; bt != nil {
				open = string(bt.Bytes())
			}
			if got := texts(sealed(b)); !slices.Equal(got, tt.sealed) || open != tt.open {
				t.Errorf("sealed %q, open %q, want %q and %q", got, open, tt.sealed, tt.open)
			}
		})
	}
}

// With memory for a part of the lines a part is taken, and the rest later,
// exactly from there. PI05 and PI07: lines of any length stay whole.
func TestAppendLinesShortOfMemory(t *testing.T) {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "%d:%s\n", i, strings.Repeat("x", i*7%500))
	}
	fmt.Fprintf(&text, "%s\n", strings.Repeat("y", 3*PageSize))
	b := newBuffer(t, 4, Limits{1000, 2 * PageSize, long})
	var got strings.Builder
	tries := 0
	for rest := text.String(); len(rest) > 0; tries++ {
		n, size := appendLines(b, rest)
		if n != strings.Count(rest[:size], "\n") || size > 0 && rest[size-1] != '\n' {
			t.Fatalf("took %d lines, %d bytes", n, size)
		}
		rest = rest[size:]
		b.Seal(ByReopen)
		for _, bt := range sealed(b) {
			got.Write(bt.Bytes())
			b.Done(bt, 0, "")
		}
	}
	if got.String() != text.String() {
		t.Error("what came out is not what went in")
	}
	if tries < 3 {
		t.Errorf("memory was never short: %d tries", tries)
	}
	if n, size := appendLines(b, strings.Repeat("z", 4*PageSize)+"\n"); n != 0 || size != 0 {
		t.Errorf("took %d lines, %d bytes of a line that cannot fit", n, size)
	}
}

// A block of lines ends batches where single lines do.
func FuzzAppendLines(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), uint16(2), uint16(100), uint8(8))
	f.Add([]byte("\n\nlonger than a batch\n\n"), uint16(9), uint16(7), uint8(8))
	f.Fuzz(func(t *testing.T, text []byte, messages, size uint16, first uint8) {
		text = append(text, '\n')
		limits := Limits{1 + int(messages), int(size), long}
		line, block := newBuffer(t, 1<<10, limits), newBuffer(t, 1<<10, limits)
		cut := bytes.IndexByte(text[int(first)%len(text):], '\n') + int(first)%len(text) + 1
		for part := range bytes.Lines(text) {
			if !add(line, "", string(part[:len(part)-1])) {
				t.Skip("too much text")
			}
		}
		for _, part := range [][]byte{text[:cut], text[cut:]} {
			if n, size := appendLines(block, string(part)); size != len(part) || n != bytes.Count(part, newline) {
				t.Skip("too much text")
			}
		}
		line.Close()
		block.Close()
		if got, want := texts(sealed(block)), texts(sealed(line)); !slices.Equal(got, want) {
			t.Errorf("block %q\nlines %q", got, want)
		}
		if got, want := block.Stats().Batches, line.Stats().Batches; got != want {
			t.Errorf("block %v, lines %v by cause", got, want)
		}
	})
}
