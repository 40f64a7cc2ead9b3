package load

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"
)

// All that is compared with figures of elsewhere depends on these two.
func TestMessagesLookLikeAnAccessLog(t *testing.T) {
	set := NewMessages(1)
	const member = 64 << 10
	text := make([]byte, 0, member)
	n := 0
	for ; len(text) < member; n++ {
		text = append(set.Append(text, n), '\n')
	}
	if mean := len(text) / n; mean < 235 || mean > 265 {
		t.Errorf("a message has %d bytes, want about 250", mean)
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.DefaultCompression)
	w.Write(text)
	w.Close()
	if ratio := float64(len(text)) / float64(packed.Len()); ratio < 5 || ratio > 8 {
		t.Errorf("text packs %.2f : 1, which access logs do not", ratio)
	}
}

func TestAppend(t *testing.T) {
	set := NewMessages(3)
	for _, n := range []int{0, 7, setSize - 1, setSize, 5*setSize + 12} {
		text := set.Append([]byte("before "), n)
		if want := fmt.Sprintf(" seq=%010d", n); !bytes.HasSuffix(text, []byte(want)) {
			t.Errorf("message %d ends with %q, want %q", n, text[len(text)-len(want):], want)
		}
		if want := "before <190>Nov 30 10:"; !bytes.HasPrefix(text, []byte(want)) {
			t.Errorf("message %d is %q", n, text)
		}
		if host := fmt.Sprintf(" web-%04d nginx: ", n%setSize%3); !bytes.Contains(text, []byte(host)) {
			t.Errorf("message %d has not %q: %q", n, host, text)
		}
		if got, ok := set.Number(text[len("before "):]); got != n || !ok {
			t.Errorf("number of message %d is %d, %v", n, got, ok)
		}
	}
	if !bytes.Equal(set.Append(nil, 99), NewMessages(3).Append(nil, 99)) {
		t.Error("two sets differ")
	}
}

func TestNumberFindsDamage(t *testing.T) {
	set := NewMessages(1)
	whole := set.Append(nil, 4711)
	_, body, _ := bytes.Cut(whole, []byte("nginx: "))
	for name, test := range map[string]struct {
		text []byte
		ok   bool
	}{
		"whole":              {whole, true},
		"without its header": {body, true},
		"a part of a header": {whole[3:], false},
		"empty":              {nil, false},
		"the number alone":   {[]byte("0000004711"), false},
		"no number":          {append(bytes.Clone(whole), '.'), false},
		"another's number":   {append(bytes.Clone(whole[:len(whole)-1]), '2'), false},
		"one byte changed":   {bytes.Replace(whole, []byte("HTTP"), []byte("HTTQ"), 1), false},
		"two in one":         {append(bytes.Clone(whole), whole...), false},
	} {
		if _, ok := set.Number(test.text); ok != test.ok {
			t.Errorf("%s: %v, want %v", name, ok, test.ok)
		}
	}
}

func TestLinesHaveTheirSize(t *testing.T) {
	for _, size := range []int{64, 119, 9999} {
		set := NewLines(size)
		for n := range 2000 {
			line := set.Append(nil, n)
			if len(line) != size {
				t.Fatalf("line %d of %d bytes has %d: %q", n, size, len(line), line)
			}
			if got, ok := set.Number(line); got != n || !ok || bytes.IndexByte(line, '\n') >= 0 {
				t.Fatalf("line %d is not itself: %q", n, line)
			}
		}
	}
}
