package gzipwriter

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
)

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
