package syslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// feed runs input through a framer, at most size bytes at a time, and returns
// the frames, each as text with its marks.
func feed(f *Framer, input string, size int) (frames []string) {
	for len(input) > 0 {
		n := copy(f.Space(1), input[:min(size, len(input))])
		f.Filled(n)
		input = input[n:]
		frames = append(frames, drainFramer(f)...)
	}
	return frames
}

func drainFramer(f *Framer) (frames []string) {
	for frame, ok := f.Next(); ok; frame, ok = f.Next() {
		frames = append(frames, show(frame))
	}
	return frames
}

func show(frame Frame) string {
	s := string(frame.Text)
	if frame.Truncated {
		s += " [truncated]"
	}
	if frame.Partial {
		s += " [partial]"
	}
	return s
}

const one, two = "<13>1 2026-03-15T10:20:30Z h1 app - - - one", "<13>1 2026-03-15T10:20:30Z h1 app - - - two"

var frameTests = []struct {
	name    string
	framing Framing
	limit   int
	input   string
	want    []string
	err     string
}{
	// F01, F04, F05, F06, F14
	{"counted", FramingAuto, 1024, "43 " + one + "43 " + two, []string{one, two}, ""},
	{"LF", FramingAuto, 1024, one + "\n" + two + "\n", []string{one, two}, ""},
	{"CR LF", FramingAuto, 1024, one + "\r\n" + two + "\r\n", []string{one, two}, ""},
	{"NUL", FramingAuto, 1024, one + "\x00" + two + "\x00", []string{one, two}, ""},
	{"no LF at the end", FramingAuto, 1024, one + "\n" + two, []string{one, two}, ""},
	// F07, SE03: as auto says, and with octet counting forced
	{"count too long, auto", FramingAuto, 1024, "99999999999999999999 " + one, []string{"99999999999999999999 " + one}, ""},
	{"count too long", FramingOctet, 1024, "99999999999999999999 " + one, nil, `bad octet count "99999999999"`},
	{"count too long after a frame", FramingAuto, 1024, "43 " + one + "99999999999 x", []string{one}, `bad octet count "99999999999"`},
	{"digits only", FramingOctet, 1024, strings.Repeat("1", 100_000), nil, `bad octet count "11111111111"`},
	{"digits only, auto", FramingAuto, 8, strings.Repeat("1", 100_000), []string{"11111111 [truncated]"}, ""},
	{"count of 4294967295", FramingAuto, 1024, "4294967295 " + one, []string{one + " [truncated]"}, ""},
	{"count of ten digits", FramingOctet, 4, "9999999999 abcdefgh", []string{"abcd [truncated]"}, ""},
	// F09
	{"count too large", FramingAuto, 1024, "48 " + one + "43 " + two, []string{one + "43 <1"}, `bad octet count "3>"`},
	// F10, F12, F16, F17, F18
	{"tag", FramingAuto, 1024, "29 <13>Mar 15 10:20:30 h1 app: x29 <13>Mar 15 10:20:30 h1 app: x",
		[]string{"<13>Mar 15 10:20:30 h1 app: x", "<13>Mar 15 10:20:30 h1 app: x"}, ""},
	{"long", FramingAuto, 64 << 10, "20028 <13>Mar 15 10:20:30 h1 app: " + strings.Repeat("B", 20000) + "43 " + two,
		[]string{"<13>Mar 15 10:20:30 h1 app: " + strings.Repeat("B", 20000), two}, ""},
	{"over the limit", FramingAuto, 100, "20028 <13>Mar 15 10:20:30 h1 app: " + strings.Repeat("B", 20000) + "43 " + two,
		[]string{"<13>Mar 15 10:20:30 h1 app: " + strings.Repeat("B", 72) + " [truncated]", two}, ""},
	{"count of bytes", FramingAuto, 1024, "49 <13>1 2026-03-15T10:20:30Z h1 app - - - caf\xc3\xa9 \xe4\xb8\xad43 " + two,
		[]string{"<13>1 2026-03-15T10:20:30Z h1 app - - - café 中", two}, ""},
	{"ends in a space", FramingAuto, 1024, "54 <13>1 2026-03-15T10:20:30Z h1 app - - - ends in space 43 " + two,
		[]string{"<13>1 2026-03-15T10:20:30Z h1 app - - - ends in space ", two}, ""},
	{"digits and <", FramingAuto, 1024, "12 <b>bold</b>\n", []string{"12 <b>bold</b>"}, ""},

	{"nothing", FramingAuto, 1024, "", nil, ""},
	{"empty lines", FramingAuto, 1024, "\n\r\n\na\n\n\x00", []string{"a"}, ""},
	{"a beginning of a count", FramingAuto, 1024, "12 <", []string{"12 <"}, ""},
	{"a leading zero", FramingAuto, 1024, "043 <1\n", []string{"043 <1"}, ""},
	{"forced LF", FramingLF, 1024, "43 " + one + "\n", []string{"43 " + one}, ""},
	{"forced octet", FramingOctet, 1024, "1 a2 bc", []string{"a", "bc"}, ""},
	{"a count of nothing", FramingOctet, 1024, "0 a", nil, `bad octet count "0"`},
	{"LF after a counted frame", FramingOctet, 1024, "1 a\n1 b", []string{"a"}, "bad octet count \"\\n\""},
	{"LF inside a counted frame", FramingOctet, 1024, "3 a\nb4 \x00\r\n\n", []string{"a\nb", "\x00\r\n\n"}, ""},
	{"a counted frame cut short", FramingOctet, 1024, "1 a5 bcd", []string{"a", "bcd [truncated]"}, ""},
	{"a count and no more", FramingOctet, 1024, "1 a5 ", []string{"a"}, ""},
	{"NUL before a digit", FramingLF, 1024, "a\x001b\n", []string{"a", "1b"}, ""},
	{"NUL inside", FramingLF, 1024, "a\x00b\x00\nc\x00\x00<", []string{"a\x00b\x00", "c\x00", "<"}, ""},
	{"CR inside", FramingLF, 1024, "a\rb\r\r\nc\r", []string{"a\rb\r", "c\r"}, ""},

	{"exactly the limit", FramingLF, 4, "abcd\r\nabcd\nabcd\x00<bcd", []string{"abcd", "abcd", "abcd", "<bcd"}, ""},
	{"one more", FramingLF, 4, "abcde\r\nx\nabcd\r\r\ny\nabcd\x00x\nz", []string{
		"abcd [truncated]", "x", "abcd [truncated]", "y", "abcd [truncated]", "z"}, ""},
	{"the rest of a line is thrown away", FramingLF, 4, "abcdefgh\x00ijkl\x00<m\n", []string{"abcd [truncated]", "<m"}, ""},
	{"never inside a character", FramingLF, 4, "abc\xe4\xb8\xad\nab\xf0\x9f\x98\x80\nabcd\xc3\xa9\n", []string{
		"abc [truncated]", "ab [truncated]", "abcd [truncated]"}, ""},
	{"invalid UTF-8 at the limit", FramingLF, 4, "ab\x80\x80\x80\n\x80\x80\x80\x80\x80\n", []string{
		"ab\x80\x80 [truncated]", "\x80\x80\x80\x80 [truncated]"}, ""},
	{"a counted one, never inside a character", FramingOctet, 4, "6 abc\xe4\xb8\xad1 x", []string{"abc [truncated]", "x"}, ""},
}

func TestFramer(t *testing.T) {
	for _, test := range frameTests {
		for _, size := range []int{1, 2, 3, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", test.name, size), func(t *testing.T) {
				f := NewFramer(test.framing, test.limit)
				got := feed(f, test.input, size)
				f.End()
				got = append(got, drainFramer(f)...)
				if !slices.Equal(got, test.want) {
					t.Errorf("frames\n%q, want\n%q", got, test.want)
				}
				var bad *FramingError
				switch err := f.Err(); {
				case err == nil && test.err != "":
					t.Errorf("no error, want %s", test.err)
				case err != nil && (err.Error() != test.err || !errors.As(err, &bad)):
					t.Errorf("error %v, want %q", err, test.err)
				}
			})
		}
	}
}

// TestFramerFlush: F19, and what follows of a frame that was given out.
func TestFramerFlush(t *testing.T) {
	tests := []struct {
		name    string
		framing Framing
		pieces  []string // a flush after each but the last
		want    []string
	}{
		{"no end", FramingAuto, []string{"<13>x", ""}, []string{"<13>x [partial]"}},
		{"the rest of a line", FramingLF, []string{"ab", "cd\nef\n"}, []string{"ab [partial]", "cd [partial]", "ef"}},
		{"no rest", FramingLF, []string{"ab", "\nef\n"}, []string{"ab [partial]", "ef"}},
		{"CR is framing", FramingLF, []string{"ab\r", "\nef\n"}, []string{"ab [partial]", "ef"}},
		{"CR is none", FramingLF, []string{"ab\r", "c\nef\n"}, []string{"ab [partial]", "\rc [partial]", "ef"}},
		{"NUL is framing", FramingLF, []string{"ab\x00", "<ef\n"}, []string{"ab [partial]", "<ef"}},
		{"NUL is none", FramingLF, []string{"ab\x00", "c\n"}, []string{"ab [partial]", "\x00c [partial]"}},
		{"half a character", FramingLF, []string{"ab\xe4\xb8", "\xad\n"}, []string{"ab [partial]", "中 [partial]"}},
		{"twice", FramingLF, []string{"ab", "", "cd", "e\nf\n"}, []string{"ab [partial]", "cd [partial]", "e [partial]", "f"}},
		{"nothing held", FramingLF, []string{"ab\n", "cd\n"}, []string{"ab", "cd"}},
		{"the rest of a count", FramingOctet, []string{"5 ab", "cde2 fg"}, []string{"ab [partial]", "cde [partial]", "fg"}},
		{"half a count", FramingOctet, []string{"1", "2 abcdefghijkl"}, []string{"abcdefgh [truncated]"}},
		{"over the limit", FramingOctet, []string{"20 ab", "cdefghijklmnopqrst1 x"},
			[]string{"ab [partial]", "cdefghij [truncated] [partial]", "x"}},
		{"while the rest is thrown away", FramingOctet, []string{"12 abcdefghi", "jkl1 x"}, []string{"abcdefgh [truncated]", "x"}},
		{"while the rest of a line is thrown away", FramingLF, []string{"abcdefghijk", "l\nx\n"}, []string{"abcdefgh [truncated]", "x"}},
		{"undecided", FramingAuto, []string{"12", " <3\n"}, []string{"12 [partial]", " <3 [partial]"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := NewFramer(test.framing, 8)
			var got []string
			for i, piece := range test.pieces {
				got = append(got, feed(f, piece, 1)...)
				if i < len(test.pieces)-1 {
					if frame, ok := f.Flush(); ok {
						got = append(got, show(frame))
					}
				}
			}
			f.End()
			if got = append(got, drainFramer(f)...); !slices.Equal(got, test.want) {
				t.Errorf("frames\n%q, want\n%q", got, test.want)
			}
		})
	}
}

// TestFramerMemory: what a count promises takes nothing, and a long frame's
// buffer is given up after it.
func TestFramerMemory(t *testing.T) {
	f := NewFramer(FramingOctet, 1<<30)
	feed(f, "1000000000 abc", 1<<20)
	if n := f.SpaceSize(4096); n > 8192 {
		t.Errorf("%d bytes for a frame of which 3 have arrived", n)
	}
	f = NewFramer(FramingLF, 1<<20)
	feed(f, strings.Repeat("a", 1<<20), 4096)
	if n := f.SpaceSize(4096); n > 3<<20 {
		t.Errorf("%d bytes for a frame of %d", n, 1<<20)
	}
	feed(f, "\n", 1)
	if n := len(f.Space(4096)); n > 8192 {
		t.Errorf("%d bytes for an empty framer", n)
	}
}

func TestFramerAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	input := []byte(strings.Repeat(one+"\n", 50) + "half a li")
	f := NewFramer(FramingAuto, 64<<10)
	n := testing.AllocsPerRun(100, func() {
		f.Filled(copy(f.Space(len(input)), input))
		for _, ok := f.Next(); ok; _, ok = f.Next() {
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}

// FuzzFrames: however the input is cut into reads, the frames are the same;
// they are bounded, and the buffer is; and what is neither framing nor thrown
// away is all there, in order.
func FuzzFrames(f *testing.F) {
	for _, test := range frameTests {
		if len(test.input) < 1024 {
			f.Add([]byte(test.input), uint8(test.framing), uint16(test.limit), []byte{1, 5, 2})
		}
	}
	f.Fuzz(func(t *testing.T, input []byte, framing uint8, limit uint16, cuts []byte) {
		mode, most := Framing(framing%3), int(limit)%300+1
		whole := NewFramer(mode, most)
		want := feed(whole, string(input), len(input)+1)
		whole.End()
		want = append(want, drainFramer(whole)...)

		split := NewFramer(mode, most)
		var got []string
		rest, at := input, 0
		for i := 0; len(rest) > 0; i++ {
			n := 1
			if len(cuts) > 0 {
				n = min(int(cuts[i%len(cuts)])+1, len(rest))
			}
			split.Filled(copy(split.Space(n), rest[:n]))
			rest = rest[n:]
			for frame, ok := split.Next(); ok; frame, ok = split.Next() {
				got = append(got, show(frame))
				if len(frame.Text) > most {
					t.Fatalf("a frame of %d bytes, the limit is %d", len(frame.Text), most)
				}
				found := bytes.Index(input[at:], frame.Text)
				if found < 0 {
					t.Fatalf("%q is not in the input from %d on", frame.Text, at)
				}
				at += found + len(frame.Text)
			}
			if split.Err() != nil {
				break // its connection is closed
			}
			if split.Held() > most+2+maxCountDigits {
				t.Fatalf("%d bytes held, the limit is %d", split.Held(), most)
			}
			if size := len(split.buf); size > 4*(most+2+maxCountDigits)+2*256 {
				t.Fatalf("a buffer of %d bytes, the limit is %d", size, most)
			}
		}
		split.End()
		got = append(got, drainFramer(split)...)
		if !slices.Equal(got, want) {
			t.Fatalf("in pieces\n%q, whole\n%q", got, want)
		}
		if (whole.Err() == nil) != (split.Err() == nil) {
			t.Fatalf("in pieces %v, whole %v", split.Err(), whole.Err())
		}
		if split.framing == FramingLF && !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "[truncated]") }) {
			checkLines(t, input, got)
		}
	})
}

// checkLines compares LF framing with its definition, applied to the whole.
func checkLines(t *testing.T, input []byte, got []string) {
	var want []string
	begin := 0
	for i, c := range input {
		last := i+1 == len(input)
		text := input[begin:i]
		switch {
		case c == '\n':
			text = bytes.TrimSuffix(text, cr)
		case c == 0 && (last || input[i+1] == '<' || isDigit(input[i+1])):
		case last:
			text = input[begin:]
		default:
			continue
		}
		begin = i + 1
		if len(text) > 0 {
			want = append(want, string(text))
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("frames\n%q, by definition\n%q", got, want)
	}
}
