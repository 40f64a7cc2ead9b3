package gzipwriter

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func newZstd(t testing.TB, level int) *ZstdWriter {
	t.Helper()
	w, err := NewZstdWriter(level)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A batch is one frame that every reader of zstd takes, behind one that they
// skip and that tells what the frame holds.
func TestZstdMember(t *testing.T) {
	info := Info{Messages: 3, First: 1e18, Last: 1e18 + 5, Arena: 1 << 63, Sequence: 7, Dropped: 9}
	for _, level := range []int{1, 3, 9} {
		w := newZstd(t, level)
		var file []byte
		want := ""
		for _, text := range []string{"a line\n", strings.Repeat("the same line again\n", 100_000), "x", string(make([]byte, 1<<20))} {
			member, err := w.Member([]byte(text), info)
			if err != nil {
				t.Fatal(err)
			}
			var h header
			if !h.parseSkipped(member) || int(h.length) != len(member) || int(h.text) != len(text) || h.info != info {
				t.Errorf("header %+v of %d bytes, text %d", h, len(member), len(text))
			}
			if got, ok := FirstInfo(bytes.NewReader(member)); !ok || got != info {
				t.Errorf("first info %+v, %v", got, ok)
			}
			file = append(file, member...)
			want += text
		}
		r, err := zstd.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != want {
			t.Errorf("level %d: %d bytes, want %d, %v", level, len(got), len(want), err)
		}
		if _, err := exec.LookPath("zstd"); err != nil {
			t.Log("not read by zstd(1): ", err)
			continue
		}
		path := filepath.Join(t.TempDir(), "x.zst")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("zstd", "-dcq", path).Output()
		if err != nil || string(out) != want {
			t.Errorf("level %d: zstd(1) reads %d bytes, want %d, %v", level, len(out), len(want), err)
		}
	}
}

func TestZstdMemberErrors(t *testing.T) {
	for _, level := range []int{0, 10, -1} {
		if _, err := NewZstdWriter(level); err == nil {
			t.Errorf("level %d is taken", level)
		}
	}
	w := newZstd(t, 1)
	if _, err := w.Member(nil, Info{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("no text: %v", err)
	}
	if m, err := w.Member([]byte("x"), Info{}); err != nil || len(m) == 0 {
		t.Errorf("after an error: %v", err)
	}
}

// No byte of the header can be another without being noticed.
func TestZstdHeaderSum(t *testing.T) {
	member, err := newZstd(t, 1).Member([]byte("text\n"), Info{Messages: 1})
	if err != nil {
		t.Fatal(err)
	}
	var h header
	for i := range lbFrameLen {
		for _, flip := range []byte{1, 0x80} {
			bad := bytes.Clone(member)
			bad[i] ^= flip
			if h.parseSkipped(bad) {
				t.Errorf("byte %d", i)
			}
		}
		if h.parseSkipped(member[:i]) {
			t.Errorf("cut to %d bytes", i)
		}
	}
}

// A torn tail of a file in zstd is found and cut off, wherever it is torn.
func TestZstdRepair(t *testing.T) {
	w := newZstd(t, 1)
	var file []byte
	var ends []int
	for range 3 {
		member, err := w.Member([]byte(strings.Repeat("a line of text\n", 50)), Info{Messages: 50})
		if err != nil {
			t.Fatal(err)
		}
		file = append(file, member...)
		ends = append(ends, len(file))
	}
	for cut := ends[1]; cut <= ends[2]; cut++ {
		path := filepath.Join(t.TempDir(), "x.zst")
		if err := os.WriteFile(path, file[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Repair(f)
		if err == nil {
			_, err = f.Write(file[:ends[0]])
		}
		f.Close()
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		repaired, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := zstd.NewReader(bytes.NewReader(repaired))
		if err != nil {
			t.Fatal(err)
		}
		lines := 150
		if cut == ends[2] {
			lines = 200
		}
		text, err := io.ReadAll(r)
		r.Close()
		if n := bytes.Count(text, []byte("\n")); err != nil || n != lines {
			t.Fatalf("cut at %d: %d lines, %v", cut, n, err)
		}
	}
}

func TestZstdMemberAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w := newZstd(t, 1)
	text := []byte(strings.Repeat("a line of text\n", 10_000))
	n := testing.AllocsPerRun(20, func() {
		if _, err := w.Member(text, Info{Messages: 1}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 { // the encoder's own
		t.Errorf("%v allocations a member", n)
	}
}
