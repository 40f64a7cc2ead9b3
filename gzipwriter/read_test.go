package gzipwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// zframe is a frame as zstd(1) makes it, with a checksum.
func zframe(t testing.TB, text []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(text, nil)
}

// zbatches are batches in zstd.
func zbatches(t testing.TB, n, size int) []batch {
	t.Helper()
	list := batches(t, n, size)
	w, err := NewZstdWriter(1)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range list {
		m, err := w.Member(b.text, b.info)
		if err != nil {
			t.Fatal(err)
		}
		list[i].member = bytes.Clone(m)
	}
	return list
}

// skippable is a frame of zstd that holds no text.
func skippable(n int) []byte {
	return append(le.AppendUint32([]byte(skipMagic), uint32(n)), make([]byte, n)...)
}

// readers returns a Reader of the file, and one of it as a stream.
func readers(file []byte) map[string]*Reader {
	return map[string]*Reader{
		"file":   NewReader(bytes.NewReader(file), int64(len(file))),
		"stream": NewStreamReader(iotest.HalfReader(bytes.NewReader(file))),
	}
}

// textOf is all text that a Reader gives out, and the damages that it tells.
func textOf(t testing.TB, r *Reader) (text []byte, damages []Damage) {
	t.Helper()
	var out bytes.Buffer
	err := r.CopyText(&out, nil, func(d *Damage) { damages = append(damages, *d) })
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), damages
}

func TestReadFormats(t *testing.T) {
	list := batches(t, 3, 3000)
	ours, text := join(list)
	theirs := foreign(t, "access.log", text)
	frame := zframe(t, text)
	zours, _ := join(zbatches(t, 3, 3000))
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name       string
		file, text []byte
		format     Format
		members    int
	}{
		{"ours", ours, text, Gzip, 3},
		{"theirs", theirs, text, Gzip, 1},
		{"theirs between ours", cat(ours, theirs, ours), cat(text, text, text), Gzip, 7},
		{"empty member", cat(foreign(t, "", nil), ours), text, Gzip, 4},
		{"zstd", frame, text, Zstd, 1},
		{"zstd frames", cat(frame, zframe(t, nil), frame), cat(text, text), Zstd, 3},
		{"zstd to be skipped", cat(skippable(9), frame, skippable(0)), text, Zstd, 3},
		{"ours in zstd", zours, text, Zstd, 3},
		{"ours between theirs in zstd", cat(frame, zours, frame), cat(text, text, text), Zstd, 5},
		{"plain", text, text, Plain, 1},
		{"plain without an end", text[:100], text[:100], Plain, 1},
		{"plain that begins like zstd", []byte("(\n"), []byte("(\n"), Plain, 1},
		{"a message that is a member", cat([]byte("x\n"), ours, []byte("\n")), cat([]byte("x\n"), ours, []byte("\n")), Plain, 1},
		{"a hole in a text", cat(make([]byte, 300), text), cat(make([]byte, 300), text), Plain, 1},
		{"empty", nil, nil, Plain, 0},
		{"one byte", []byte{0x1f}, []byte{0x1f}, Plain, 1},
	} {
		for kind, r := range readers(c.file) {
			got, damages := textOf(t, r)
			if !bytes.Equal(got, c.text) || damages != nil || r.Format() != c.format {
				t.Errorf("%s, %s: %d bytes of %d, %v, %v", c.name, kind, len(got), len(c.text), r.Format(), damages)
			}
		}
		n := 0
		r := NewReader(bytes.NewReader(c.file), int64(len(c.file)))
		for {
			_, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(c.name, err)
			}
			n++
		}
		if n != c.members {
			t.Errorf("%s: %d members, want %d", c.name, n, c.members)
		}
	}
}

// What Next tells before the text is read is what is there, and passing over
// members reads their headers only.
func TestReadHops(t *testing.T) {
	t.Run("gzip", func(t *testing.T) { checkHops(t, batches(t, 50, 30_000)) })
	t.Run("zstd", func(t *testing.T) { checkHops(t, zbatches(t, 50, 30_000)) })
}

func checkHops(t *testing.T, list []batch) {
	file, _ := join(list)
	c := &countingReader{r: bytes.NewReader(file), fail: math.MaxInt64}
	r := NewReader(c, int64(len(file)))
	var got []Member
	var text bytes.Buffer
	for i := 0; ; i++ {
		m, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
		if i == 20 {
			if _, err := r.Copy(&text); err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, got, want(list))
	if !bytes.Equal(text.Bytes(), list[20].text) {
		t.Error("another text")
	}
	// The one that was asked for, with what is read ahead, and the last.
	if most := int64(50*512 + 2*readBuffer + len(list[49].member)); c.read > most {
		t.Errorf("%d bytes read of %d, want at most %d", c.read, len(file), most)
	}
	if _, err := r.Copy(&text); err == nil {
		t.Error("Copy at the end")
	}
}

// What is longer than can be held is given out before it is proved, and the
// line that a damage ends does not run into the next.
func TestReadLongMember(t *testing.T) {
	long := bytes.Repeat(accessLines(1, 100_000), holdText/100_000+1)
	member := foreign(t, "", long[:len(long)-5])
	for name, c := range map[string]struct {
		file, text []byte
		damages    int
	}{
		"whole":   {append(bytes.Clone(member), foreign(t, "", []byte("next\n"))...), append(bytes.Clone(long[:len(long)-5]), "next\n"...), 0},
		"damaged": {append(append(bytes.Clone(member[:len(member)-8]), 1, 2, 3, 4, 5, 6, 7, 8), foreign(t, "", []byte("next\n"))...), append(bytes.Clone(long[:len(long)-5]), "\nnext\n"...), 1},
	} {
		for kind, r := range readers(c.file) {
			got, damages := textOf(t, r)
			if !bytes.Equal(got, c.text) || len(damages) != c.damages {
				t.Errorf("%s, %s: %d bytes of %d, %+v", name, kind, len(got), len(c.text), damages)
			}
		}
	}
}

// A line that was split over members of others is not joined over a gap.
func TestReadSplitLine(t *testing.T) {
	bad := foreign(t, "", []byte("lost\n"))
	bad[len(bad)-1] ^= 1
	file := bytes.Join([][]byte{foreign(t, "", []byte("a\nhal")), foreign(t, "", []byte("f\nb")), bad, foreign(t, "", []byte("c\n"))}, nil)
	for kind, r := range readers(file) {
		if got, _ := textOf(t, r); string(got) != "a\nhalf\nb\nc\n" {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

// Of a stream only so much is kept, and a damage that is longer than that is
// got over too.
func TestReadLongStream(t *testing.T) {
	noise := make([]byte, 2*keepStream+keepStream/2)
	rand.NewChaCha8([32]byte{}).Read(noise)
	var bad []byte // a member of 600 stored blocks
	for b := noise; len(b) > 0; {
		n := min(len(b), math.MaxUint16)
		bad = le.AppendUint16(append(bad, 0), uint16(n))
		bad = append(le.AppendUint16(bad, ^uint16(n)), b[:n]...)
		b = b[n:]
	}
	bad = append([]byte(magic+"\x00\x00\x00\x00\x00\x00\xff"), bad...)
	bad = append(bad, 1, 0, 0, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8) // an empty last block, a wrong trailer
	last := foreign(t, "", []byte("end\n"))
	r := NewStreamReader(io.MultiReader(bytes.NewReader(bad), bytes.NewReader(last)))
	got, damages := textOf(t, r)
	if !bytes.HasSuffix(got, []byte("end\n")) || len(damages) != 1 || damages[0].Length != int64(len(bad)) {
		t.Errorf("%d bytes, %+v", len(got), damages)
	}
	if n := cap(r.src.kept); n > 3*keepStream {
		t.Errorf("%d bytes kept", n)
	}
}

// A frame that wants more memory than it may is damage, whatever it holds.
func TestReadHostileWindow(t *testing.T) {
	frame := []byte(zstdMagic + "\x00\xf8\x01\x00\x00") // a window of 2^41, one empty block
	for kind, r := range readers(append(frame, zframe(t, []byte("x\n"))...)) {
		got, damages := textOf(t, r)
		if string(got) != "x\n" || len(damages) != 1 || damages[0].Length != int64(len(frame)) {
			t.Errorf("%s: %q, %+v", kind, got, damages)
		}
	}
}

// An error of reading or of writing is no statement about the file.
func TestReadErrors(t *testing.T) {
	list := batches(t, 3, 300_000)
	ours, _ := join(list)
	for name, file := range map[string][]byte{"ours": ours, "zstd": zframe(t, list[0].text), "plain": list[0].text} {
		for _, fail := range []int{0, 10, len(file) / 2, len(file) - 1} {
			c := &countingReader{r: bytes.NewReader(file), fail: int64(fail)}
			err := NewReader(c, int64(len(file))).CopyText(io.Discard, nil, func(d *Damage) { t.Errorf("%s: %v", name, d) })
			if !errors.Is(err, unix.EIO) {
				t.Errorf("%s fails at %d: %v", name, fail, err)
			}
			stream := io.MultiReader(bytes.NewReader(file[:fail]), iotest.ErrReader(unix.EIO))
			err = NewStreamReader(stream).CopyText(io.Discard, nil, func(d *Damage) { t.Errorf("%s: %v", name, d) })
			if !errors.Is(err, unix.EIO) {
				t.Errorf("stream of %s fails at %d: %v", name, fail, err)
			}
		}
		shut := &failingWriter{err: unix.EPIPE}
		err := NewReader(bytes.NewReader(file), int64(len(file))).CopyText(shut, nil, func(d *Damage) { t.Errorf("%s: %v", name, d) })
		if err != unix.EPIPE || shut.calls != 1 {
			t.Errorf("%s: %v after %d writes", name, err, shut.calls)
		}
		err = NewReader(bytes.NewReader(file[:100]), int64(len(file))).CopyText(io.Discard, nil, func(d *Damage) { t.Errorf("%s: %v", name, d) })
		if err != errShrunk {
			t.Errorf("%s, shrunk: %v", name, err)
		}
	}
}

// failingWriter takes nothing.
type failingWriter struct {
	err   error
	calls int
}

func (f *failingWriter) Write([]byte) (int, error) { f.calls++; return 0, f.err }

// lastLines is what tail(1) gives of a text.
func lastLines(text []byte, n int64) string {
	lines := bytes.SplitAfter(text, []byte{'\n'})
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	return string(bytes.Join(lines[max(0, int64(len(lines))-n):], nil))
}

// lastLinesOf is what the Reader gives of a file.
func lastLinesOf(t testing.TB, file []byte, n, step int64) string {
	t.Helper()
	r := NewReader(bytes.NewReader(file), int64(len(file)))
	skip, err := r.lastLines(n, step)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.CopyText(&afterLines{&out, skip}, nil, func(*Damage) {}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func ExampleDamage() {
	fmt.Println(&Damage{Offset: 73, Length: 20, Err: io.ErrUnexpectedEOF})
	// Output: 20 bytes lost at offset 73: the end is missing
}
