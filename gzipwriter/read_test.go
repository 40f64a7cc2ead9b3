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

// A member is given out whole or not at all; whichever it is, all others are.
func TestReadFlips(t *testing.T) {
	t.Run("gzip", func(t *testing.T) { checkFlips(t, batches(t, 300, 2000)) })
	t.Run("zstd", func(t *testing.T) { checkFlips(t, zbatches(t, 300, 2000)) })
}

func checkFlips(t *testing.T, list []batch) {
	whole, _ := join(list)
	for _, flips := range []int{1, 10, 1000} {
		for seed := range uint64(3) {
			rnd := rand.New(rand.NewPCG(seed, uint64(flips)))
			file := bytes.Clone(whole)
			touched := make([]bool, len(file))
			for range flips {
				at := rnd.IntN(len(file))
				if bytes.HasSuffix(whole[:at], []byte(zstdMagic)) {
					continue // says whether there is a checksum, and lies in none
				}
				file[at] ^= 1 << rnd.IntN(8)
				touched[at] = file[at] != whole[at]
			}
			for kind, r := range readers(file) {
				got, damages := textOf(t, r)
				lost := recovered(t, list, touched, got)
				if (lost > 0) != (len(damages) > 0) {
					t.Fatalf("%s, %d flips, seed %d: %d members lost, %d damages told", kind, flips, seed, lost, len(damages))
				}
			}
			checkSalvage(t, file, list, touched)
		}
	}
}

// recovered fails unless text is that of the members in their order, without
// some that were touched, and returns how many of those are missing.
func recovered(t *testing.T, list []batch, touched []bool, text []byte) (lost int) {
	t.Helper()
	off := 0
	for i, b := range list {
		end := off + len(b.member)
		switch {
		case bytes.HasPrefix(text, b.text):
			text = text[len(b.text):]
		case bytes.Contains(boolBytes(touched[off:end]), []byte{1}):
			lost++
		default:
			t.Fatalf("member %d at %d is whole, but not there", i, off)
		}
		off = end
	}
	if len(text) > 0 {
		t.Fatalf("%d bytes are no member's text", len(text))
	}
	return lost
}

func boolBytes(b []bool) []byte {
	p := make([]byte, len(b))
	for i, x := range b {
		if x {
			p[i] = 1
		}
	}
	return p
}

// checkSalvage fails unless Salvage leaves a whole file of the same members,
// and loses no byte.
func checkSalvage(t *testing.T, file []byte, list []batch, touched []bool) {
	t.Helper()
	f := create(t, file)
	cut, pieces, err := Salvage(f)
	if err != nil {
		t.Fatal(err)
	}
	left := content(t, f.Name())
	text, damages := textOf(t, NewReader(bytes.NewReader(left), int64(len(left))))
	lost := recovered(t, list, touched, text)
	if damages != nil || int64(len(left))+cut != int64(len(file)) || (cut > 0) != (lost > 0) || (pieces > 0) != (lost > 0) {
		t.Fatalf("cut %d in %d pieces, %d left of %d; %d members lost; %v", cut, pieces, len(left), len(file), lost, damages)
	}
	if list[0].member[0] == magic[0] && !bytes.Equal(gunzip(t, left), text) {
		t.Fatal("the standard library reads another text")
	}
	if cut > 0 && int64(len(content(t, f.Name()+".torn"))) != cut {
		t.Fatal(".torn does not hold what was cut")
	}
}

// Each byte of a header of ours matters, but for those that say nothing: a
// flag for text, the time, the level and the system (RFC 1952 section 2.3.1).
func TestReadFlipsInHeader(t *testing.T) {
	list := batches(t, 3, 500)
	whole, _ := join(list)
	for at := range headerLen {
		for bit := range 8 {
			file := bytes.Clone(whole)
			file[len(list[0].member)+at] ^= 1 << bit
			r := NewReader(bytes.NewReader(file), int64(len(file)))
			told := 0
			for err := error(nil); err != io.EOF; {
				var m Member
				if _, err = r.Next(); err == nil {
					m, err = r.Copy(io.Discard)
				}
				if m.Spoilt || errors.Is(err, ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
					told++
				}
			}
			harmless := at >= 4 && at < 10 || at == 3 && bit == 0
			if (told == 0) != harmless {
				t.Errorf("bit %d of byte %d: told %d times", bit, at, told)
			}
		}
	}
}

func TestReadCutAnywhere(t *testing.T) {
	t.Run("gzip", func(t *testing.T) { checkCuts(t, batches(t, 5, 400)) })
	t.Run("zstd", func(t *testing.T) { checkCuts(t, zbatches(t, 5, 400)) })
}

func checkCuts(t *testing.T, list []batch) {
	file, _ := join(list)
	whole, text := join(list[:4])
	for at := len(whole); at < len(file); at++ {
		for kind, r := range readers(file[:at]) {
			got, damages := textOf(t, r)
			if !bytes.Equal(got, text) {
				t.Fatalf("%s cut at %d: %d bytes of %d", kind, at, len(got), len(text))
			}
			if at == len(whole) {
				if damages != nil {
					t.Fatal(kind, damages)
				}
				continue
			}
			if len(damages) != 1 || damages[0].Offset != int64(len(whole)) || damages[0].Length != int64(at-len(whole)) ||
				!damages[0].Tail || damages[0].Text != 0 || !errors.Is(&damages[0], io.ErrUnexpectedEOF) {
				t.Fatalf("%s cut at %d of %d: %+v", kind, at, len(whole), damages)
			}
		}
	}
}

func TestReadDamaged(t *testing.T) {
	list := batches(t, 4, 4000)
	text := accessLines(9, 4000)
	theirs, frame := foreign(t, "x", text), zframe(t, text)
	flip := func(b []byte, at int) []byte { b = bytes.Clone(b); b[(at+len(b))%len(b)] ^= 1; return b }
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	m := func(i int) []byte { return list[i].member }
	for _, c := range []struct {
		name    string
		file    []byte
		text    []byte
		offset  int // of the only damage
		length  int
		tail    bool
		partial bool // some text of what is damaged comes too
	}{
		{"ours", cat(m(0), flip(m(1), 500), m(2)), cat(list[0].text, list[2].text), len(m(0)), len(m(1)), false, false},
		{"theirs", cat(theirs, flip(theirs, -8), theirs), cat(text, text), len(theirs), len(theirs), false, false},
		{"first magic", cat(flip(m(0), 0), m(1)), list[1].text, 0, len(m(0)), false, false},
		{"their first magic", cat(flip(theirs, 1), theirs), text, 0, len(theirs), false, false},
		{"garbage between", cat(m(0), []byte("garbage"), m(1)), cat(list[0].text, list[1].text), len(m(0)), 7, false, false},
		{"hole across pieces", cat(m(0), make([]byte, readBuffer-1), m(1)), cat(list[0].text, list[1].text), len(m(0)), readBuffer - 1, false, false},
		{"padding", cat(m(0), make([]byte, 512)), list[0].text, len(m(0)), 512, true, false},
		{"theirs cut in the middle", cat(theirs[:500], m(0)), list[0].text, 0, 500, false, false},
		{"theirs torn", cat(m(0), theirs[:len(theirs)/2]), list[0].text, len(m(0)), len(theirs) / 2, true, true},
		{"ours torn", cat(m(0), m(1)[:len(m(1))-1]), list[0].text, len(m(0)), len(m(1)) - 1, true, false},
		{"LB length", cat(relabel(m(0), func(h *header) { h.length++ }), m(1)), list[1].text, 0, len(m(0)), false, false},
		{"LB length without end", cat(relabel(m(0), func(h *header) { h.length = math.MaxUint32 }), m(1)), list[1].text, 0, len(m(0)), false, false},
		{"frame", cat(frame, flip(frame, 200), frame), cat(text, text), len(frame), len(frame), false, false},
		{"frame's checksum", cat(frame, flip(frame, -1), frame), cat(text, text), len(frame), len(frame), false, false},
		{"frame's magic", cat(flip(frame, 0), frame), text, 0, len(frame), false, false},
		{"frame torn", cat(frame, frame[:300]), text, len(frame), 300, true, false},
		{"frame's header torn", cat(frame, frame[:5]), text, len(frame), 5, true, false},
		{"frame to be skipped torn", cat(frame, skippable(20)[:9]), text, len(frame), 9, true, false},
	} {
		for kind, r := range readers(c.file) {
			got, damages := textOf(t, r)
			if len(damages) != 1 {
				t.Errorf("%s, %s: %+v", c.name, kind, damages)
				continue
			}
			d := damages[0]
			if d.Offset != int64(c.offset) || d.Length != int64(c.length) || d.Tail != c.tail {
				t.Errorf("%s, %s: %+v, want %d at %d", c.name, kind, d, c.length, c.offset)
			}
			if !bytes.HasPrefix(got, c.text) || (d.Text > 0) != c.partial || int64(len(got)-len(c.text)) != d.Text {
				t.Errorf("%s, %s: %d bytes, want %d; %+v", c.name, kind, len(got), len(c.text), d)
			}
		}
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

// FuzzReader holds the Reader to its contract on any bytes: members and
// damages are adjacent and end where the file does, a stream is read like a
// file, what is whole to the standard library is whole, and the last lines are
// those of the whole text.
func FuzzReader(f *testing.F) {
	list := batches(f, 2, 300)
	ours, _ := join(list)
	frame := zframe(f, list[0].text)
	f.Add(ours)
	f.Add(append(bytes.Clone(ours[:len(ours)-20]), ours...))
	f.Add(append(foreign(f, "n", []byte("x\ny")), ours...))
	f.Add(append(append(bytes.Clone(frame), 0), frame...))
	f.Add(append(skippable(3), frame[:len(frame)-1]...))
	f.Add([]byte("a\nb\n\nc"))
	zours, _ := join(zbatches(f, 2, 300))
	f.Add(zours)
	f.Add(zours[:len(zours)-9])
	f.Fuzz(func(t *testing.T, file []byte) {
		if wantsMuch(file) {
			t.Skip("a frame that asks for much memory is allowed, and slow")
		}
		for _, b := range [][]byte{file, resign(file)} {
			checkReader(t, b)
		}
	})
}

// wantsMuch says whether any frame may ask for more than 1 MiB of memory.
func wantsMuch(file []byte) bool {
	for i := range file {
		var h zstd.Header
		if bytes.HasPrefix(file[i:], []byte(zstdMagic)) && h.Decode(file[i:]) == nil &&
			max(h.WindowSize, h.FrameContentSize) > 1<<20 {
			return true
		}
	}
	return false
}

func checkReader(t *testing.T, file []byte) {
	size := int64(len(file))
	r := NewReader(bytes.NewReader(file), size)
	var end int64
	var text bytes.Buffer
	sound := true
	for {
		m, err := r.Next()
		if err == nil {
			m, err = r.Copy(&text)
		}
		var d *Damage
		if err == io.EOF {
			break
		}
		if errors.As(err, &d) {
			m = Member{Offset: d.Offset, Length: d.Length}
			sound, err = false, nil
			if d.Tail != (m.end() == size) {
				t.Fatalf("%+v of %d bytes", d, size)
			}
		}
		if err != nil || m.Offset != end || m.Length <= 0 {
			t.Fatalf("%+v at %d, %v", m, end, err)
		}
		end = m.end()
	}
	if end != size {
		t.Fatalf("ends at %d of %d", end, size)
	}
	if sound && r.Format() == Gzip && !bytes.Equal(gunzip(t, file), text.Bytes()) {
		t.Fatal("the standard library reads another text")
	}
	if stream, damages := textOf(t, NewStreamReader(bytes.NewReader(file))); sound != (damages == nil) ||
		sound && !bytes.Equal(stream, text.Bytes()) {
		t.Fatalf("as a stream: %d bytes of %d, %v", len(stream), text.Len(), damages)
	}
	if !sound {
		return
	}
	for n := range int64(4) {
		if got := lastLinesOf(t, file, n, 16); got != lastLines(text.Bytes(), n) {
			t.Fatalf("the last %d lines are %q of %q", n, got, text.String())
		}
	}
}

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
