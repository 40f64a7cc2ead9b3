package gzipwriter

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// scan walks over a file in memory.
func scan(file []byte) ([]Member, *Scanner) {
	s := ScanMembers(bytes.NewReader(file), int64(len(file)))
	var list []Member
	for s.Next() {
		list = append(list, s.Member())
	}
	return list, s
}

// want is what a scan of these batches must tell.
func want(list []batch) (members []Member) {
	off := int64(0)
	for _, b := range list {
		m := Member{Offset: off, Length: int64(len(b.member)), Text: int64(len(b.text)), Ours: true, Info: b.info}
		members, off = append(members, m), m.end()
	}
	return members
}

// same fails unless the two lists are equal.
func same(t *testing.T, got, want []Member) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d members, want %d: %+v", len(got), len(want), got)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("member %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestScanOurs(t *testing.T) {
	list := batches(t, 20, 3000)
	file, _ := join(list)
	got, s := scan(file)
	same(t, got, want(list))
	if s.End() != int64(len(file)) || s.Err() != nil || s.Next() {
		t.Errorf("end %d of %d, %v", s.End(), len(file), s.Err())
	}
	if got, s := scan(nil); got != nil || s.End() != 0 || s.Err() != nil {
		t.Errorf("empty file: %v, end %d, %v", got, s.End(), s.Err())
	}
}

func TestScanForeignBetween(t *testing.T) {
	list := batches(t, 4, 3000)
	text := accessLines(9, 200_000)
	broken := bytes.Clone(list[2].member)
	broken[lbPayload+1]++ // LB is wrong, the member is whole
	parts := [][]byte{
		foreign(t, "", nil), list[0].member, foreign(t, "access.log", text), foreign(t, "", text[:10]),
		list[1].member, broken, list[3].member,
	}
	ours := map[int]Info{1: list[0].info, 4: list[1].info, 6: list[3].info}
	texts := []int{0, len(list[0].text), len(text), 10, len(list[1].text), len(list[2].text), len(list[3].text)}
	var expected []Member
	off := int64(0)
	for i, p := range parts {
		info, ok := ours[i]
		expected = append(expected, Member{Offset: off, Length: int64(len(p)), Text: int64(texts[i]), Ours: ok, Spoilt: i == 5, Info: info})
		off += int64(len(p))
	}
	got, s := scan(bytes.Join(parts, nil))
	same(t, got, expected)
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

// countingReader counts what is read, and fails from an offset on.
type countingReader struct {
	r     io.ReaderAt
	read  int64
	calls int
	fail  int64
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > c.fail {
		return 0, unix.EIO
	}
	n, err := c.r.ReadAt(p, off)
	c.read, c.calls = c.read+int64(n), c.calls+1
	return n, err
}

func TestScanHops(t *testing.T) {
	list := batches(t, 30, 100_000)
	file, _ := join(list)
	c := &countingReader{r: bytes.NewReader(file), fail: math.MaxInt64}
	s := ScanMembers(c, int64(len(file)))
	n := 0
	for s.Next() {
		n++
	}
	last := int64(len(list[29].member))
	if n != 30 || c.calls > 35 || c.read > last+31*(headerLen+4) {
		t.Errorf("%d members, %d reads of %d bytes in all; the last has %d", n, c.calls, c.read, last)
	}
}

// An error of reading is no statement about the file.
func TestScanReadError(t *testing.T) {
	file, _ := join(batches(t, 3, 300_000))
	all := append(file, foreign(t, "", accessLines(1, 100_000))...)
	for _, fail := range []int64{0, 10, headerLen, 60_000, int64(len(file)) - 1, int64(len(file)) + 9, int64(len(all)) - 1} {
		s := ScanMembers(&countingReader{r: bytes.NewReader(all), fail: fail}, int64(len(all)))
		for s.Next() {
		}
		if err := s.Err(); !errors.Is(err, unix.EIO) || errors.Is(err, ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("fails at %d: %v", fail, err)
		}
	}
	s := ScanMembers(bytes.NewReader(all[:len(all)-5]), int64(len(all)))
	for s.Next() {
	}
	if !errors.Is(s.Err(), errShrunk) || errors.Is(s.Err(), io.ErrUnexpectedEOF) {
		t.Errorf("shrunk: %v", s.Err())
	}
}

// relabel gives a member another length in its LB field, checksum and all.
func relabel(member []byte, change func(*header)) []byte {
	b := bytes.Clone(member)
	var h header
	h.parse(b)
	change(&h)
	h.put(b[:headerLen], b[8])
	return b
}

func TestScanEnds(t *testing.T) {
	list := batches(t, 3, 3000)
	two, _ := join(list[:2])
	last := list[2].member
	holes := func(from int) []byte { return append(bytes.Clone(last[:from]), make([]byte, len(last)-from)...) }
	flip := func(at int) []byte { b := bytes.Clone(last); b[at] ^= 1; return b }
	theirs := foreign(t, "a", accessLines(1, 3000))
	for _, c := range []struct {
		name string
		tail []byte
		err  error
	}{
		{"zero padding", make([]byte, 512), ErrDamaged},
		{"one zero", []byte{0}, ErrDamaged},
		{"garbage", []byte("garbage"), ErrDamaged},
		{"garbage that begins well", []byte("\x1f\x8bx"), ErrDamaged},
		{"one byte of a member", last[:1], io.ErrUnexpectedEOF},
		{"a header alone", last[:headerLen], io.ErrUnexpectedEOF},
		{"all but a byte", last[:len(last)-1], io.ErrUnexpectedEOF},
		{"their header cut", theirs[:9], io.ErrUnexpectedEOF},
		{"their member cut", theirs[:len(theirs)/2], io.ErrUnexpectedEOF},
		{"their trailer cut", theirs[:len(theirs)-1], io.ErrUnexpectedEOF},
		{"hole after the header", holes(headerLen), ErrDamaged},
		{"hole in the stream", holes(len(last) / 2), ErrDamaged},
		{"hole in the trailer", holes(len(last) - 6), ErrDamaged},
		{"wrong CRC", flip(len(last) - 8), ErrDamaged},
		{"wrong ISIZE", flip(len(last) - 1), ErrDamaged},
		{"LB length short", relabel(last, func(h *header) { h.length -= 9 }), ErrDamaged},
		{"LB length long", relabel(last, func(h *header) { h.length = math.MaxUint32 }), io.ErrUnexpectedEOF},
		{"LB text length", relabel(last, func(h *header) { h.text++ }), ErrDamaged},
		{"reserved flag", func() []byte { b := bytes.Clone(last); b[3] |= 1 << 6; return b }(), ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, s := scan(append(bytes.Clone(two), c.tail...))
			same(t, got, want(list[:2]))
			if s.End() != int64(len(two)) || !errors.Is(s.Err(), c.err) {
				t.Errorf("end %d of %d, %v", s.End(), len(two), s.Err())
			}
		})
	}
}

// A length that leads into another member is noticed, for all that the bytes
// there look right.
func TestScanWrongHop(t *testing.T) {
	list := batches(t, 3, 3000)
	both := uint32(len(list[0].member) + len(list[1].member))
	long := relabel(list[0].member, func(h *header) { h.length = both })
	got, s := scan(bytes.Join([][]byte{long, list[1].member, list[2].member}, nil))
	if len(got) != 0 || !errors.Is(s.Err(), ErrDamaged) {
		t.Errorf("%d members, %v", len(got), s.Err())
	}
}

// What is before a damage is reported, wherever it is.
func TestScanFlips(t *testing.T) {
	list := batches(t, 8, 2000)
	file, _ := join(list)
	whole := want(list)
	r := rand.New(rand.NewPCG(3, 3))
	for range 1000 {
		at, bit := r.IntN(len(file)), r.IntN(8)
		file[at] ^= 1 << bit
		got, s := scan(file)
		file[at] ^= 1 << bit
		before := 0
		for before < len(whole) && whole[before].end() <= int64(at) {
			before++
		}
		if len(got) < before || s.Err() == nil && s.End() != int64(len(file)) {
			t.Fatalf("bit %d of byte %d: %d members of %d before it, end %d, %v", bit, at, len(got), before, s.End(), s.Err())
		}
		same(t, got[:before], whole[:before])
	}
}

// Real files, and what they hold up to where the first fault is.
func TestScanSamples(t *testing.T) {
	dir := filepath.FromSlash("../../shared/data/gzip")
	if _, err := os.Stat(dir); err != nil {
		t.Skip(err)
	}
	for name, c := range map[string]struct {
		members  int
		end, len int64
		err      error
	}{
		"multi": {3, 73982, 73982, nil}, "splitline": {2, 68896, 68896, nil}, "emptymember": {4, 74002, 74002, nil},
		"zeropad": {3, 73982, 74494, ErrDamaged}, "garbage": {3, 73982, 73989, ErrDamaged},
		"trunc": {2, 50389, 62185, io.ErrUnexpectedEOF}, "trunchdr": {2, 50389, 50395, io.ErrUnexpectedEOF},
		"badcrc": {1, 25155, 73982, ErrDamaged},
	} {
		file := content(t, filepath.Join(dir, name+".gz"))
		got, s := scan(file)
		if len(got) != c.members || s.End() != c.end || int64(len(file)) != c.len || !errors.Is(s.Err(), c.err) {
			t.Errorf("%s: %d members, end %d of %d, %v", name, len(got), s.End(), len(file), s.Err())
		}
	}
}

// Memory does not grow with the file, whatever its headers say.
func TestScanAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	file, _ := join(batches(t, 200, 300))
	s := ScanMembers(bytes.NewReader(file), int64(len(file)))
	s.checkFrom = 0
	for range 5 {
		s.Next()
	}
	// An inflated member with FEXTRA costs gzip.Reader one slice of 57 bytes.
	if n := testing.AllocsPerRun(100, func() { s.Next() }); n > 1 || s.Err() != nil {
		t.Errorf("%v allocations a member, %v", n, s.Err())
	}
}

// resign gives every LB field a right checksum, so that the fuzzer gets behind it.
func resign(file []byte) []byte {
	b := bytes.Clone(file)
	for i := 0; i+headerLen <= len(b); i++ {
		if string(b[i:i+3]) == magic && string(b[i+lbOffset:i+lbOffset+2]) == "LB" {
			h := b[i : i+headerLen]
			le.PutUint32(h[lbSum:], crc32.Checksum(h[lbPayload:lbSum], castagnoli))
		}
	}
	return b
}

// FuzzMembers holds the walk to its contract on any bytes.
func FuzzMembers(f *testing.F) {
	list := batches(f, 2, 300)
	both, _ := join(list)
	f.Add(both)
	f.Add(append(bytes.Clone(both), foreign(f, "n", []byte("x\n"))...))
	f.Add(both[:len(both)-3])
	f.Add(append(bytes.Clone(both), make([]byte, 20)...))
	f.Add(relabel(list[0].member, func(h *header) { h.length = math.MaxUint32 }))
	f.Fuzz(func(t *testing.T, file []byte) {
		checkWalk(t, file)
		checkWalk(t, resign(file))
	})
}

// checkWalk fails unless members are adjacent and within the file, the walk
// says why it ended, and what it calls whole when it inflates all is what the
// standard library can read.
func checkWalk(t *testing.T, file []byte) {
	got, s := scan(file)
	off := int64(0)
	for _, m := range got {
		if m.Offset != off || m.Length < fixedLen+minDeflate+trailerLen || m.Text < 0 || !m.Ours && m.Info != (Info{}) {
			t.Fatalf("%+v at %d", m, off)
		}
		off = m.end()
	}
	if off != s.End() || off > int64(len(file)) || (s.Err() == nil) != (off == int64(len(file))) {
		t.Fatalf("ends at %d, says %d of %d, %v", off, s.End(), len(file), s.Err())
	}
	if err := s.Err(); err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	all := scanAll(bytes.NewReader(file), int64(len(file)), 0)
	if all.End() > off {
		t.Fatalf("inflated %d bytes, hopped over %d", all.End(), off)
	}
	if all.End() > 0 {
		gunzip(t, file[:all.End()])
	}
	if _, err := tornFrom(bytes.NewReader(file), int64(len(file))); err != nil && !errors.Is(err, ErrUntouched) {
		t.Fatal(err)
	}
}
