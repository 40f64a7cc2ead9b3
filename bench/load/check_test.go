package load

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCheck(t *testing.T) {
	set := NewMessages(1)
	lines := func(numbers ...int) string {
		var text []byte
		for _, n := range numbers {
			text = append(set.Append(text, n), '\n')
		}
		return string(text)
	}
	for name, test := range map[string]struct {
		files []string
		want  Check
	}{
		"all":               {[]string{lines(0, 1, 2, 3)}, Check{Lines: 4, Unique: 4}},
		"one lost":          {[]string{lines(0, 1, 3)}, Check{Lines: 3, Unique: 3}},
		"one twice":         {[]string{lines(0, 1, 1, 2)}, Check{Lines: 4, Unique: 3, Duplicates: 1}},
		"two out of order":  {[]string{lines(0, 3, 1, 2)}, Check{Lines: 4, Unique: 4, Disorder: 2}},
		"order is a file's": {[]string{lines(2, 3), lines(0, 1)}, Check{Lines: 4, Unique: 4}},
		"twice in two":      {[]string{lines(0, 1), lines(1)}, Check{Lines: 3, Unique: 2, Duplicates: 1}},
		"beyond the last":   {[]string{lines(0, 64)}, Check{Lines: 2, Unique: 1, Damaged: 1}},
		"a line of another": {[]string{"hello\n" + lines(0)}, Check{Lines: 2, Unique: 1, Damaged: 1}},
		"an empty line":     {[]string{lines(0) + "\n"}, Check{Lines: 2, Unique: 1, Damaged: 1}},
		"no last line feed": {[]string{strings.TrimSuffix(lines(0, 1), "\n")}, Check{Lines: 2, Unique: 1, Damaged: 1}},
		"too long":          {[]string{strings.Repeat("x", 65<<10) + "\n" + lines(0)}, Check{Lines: 3, Unique: 1, Damaged: 2}},
		"nothing":           {[]string{""}, Check{}},
	} {
		check := NewCheck(set, 4)
		for _, file := range test.files {
			test.want.Bytes += int64(len(file))
			if err := check.Read(iotest.OneByteReader(strings.NewReader(file))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		got := *check
		got.set, got.seen = nil, nil
		if got.Lines != test.want.Lines || got.Bytes != test.want.Bytes || got.Unique != test.want.Unique ||
			got.Duplicates != test.want.Duplicates || got.Disorder != test.want.Disorder || got.Damaged != test.want.Damaged {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestCheckFailsWithItsReader(t *testing.T) {
	broken := errors.New("broken")
	err := NewCheck(NewLines(64), 1).Read(io.MultiReader(bytes.NewReader([]byte("text")), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}
