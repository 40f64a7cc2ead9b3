package gzipwriter

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"
)

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
