package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// What verify says is in testdata/verify.want; UPDATE=1 writes it anew.
func TestVerify(t *testing.T) {
	list := spansOf(t, span{0, 9, 0}, span{10, 20, 120}, span{21, 30, 1}, span{5, 12, 0})
	broken := append([]byte(nil), list[1]...)
	broken[30] ^= 1 // in the LB field
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	frame := encoder.EncodeAll([]byte("a\nb"), nil)
	plain := []byte("a\nb\nc")
	dir := t.TempDir()
	for name, parts := range map[string][][]byte{
		"whole.gz": list[:1], "gaps.gz": list, "torn.gz": {list[0], list[1][:60]}, "middle.gz": {list[0], []byte("garbage"), list[2][:50], list[3]},
		"header.gz": {list[0], broken}, "mixed.gz": {list[0], theirs(t, "x\ny")}, "theirs.gz": {theirs(t, "x\ny\n")},
		"plain": {plain}, "empty": nil, "x.zst": {frame, frame}, "torn.zst": {frame, frame[:9]}, "padded.gz": {list[0], make([]byte, 512)},
	} {
		text := ""
		for _, p := range parts {
			text += string(p)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"whole.gz", "gaps.gz", "torn.gz", "middle.gz", "header.gz", "mixed.gz", "theirs.gz", "plain", "empty", "x.zst", "torn.zst", "padded.gz"}
	var got strings.Builder
	for _, name := range names {
		code, stdout, stderr := command("verify", filepath.Join(dir, name))
		fmt.Fprintf(&got, "%s%sexit %d\n", stdout, stderr, code)
	}
	text := strings.ReplaceAll(got.String(), dir+"/", "")
	const want = "testdata/verify.want"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(want, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expected, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(expected) {
		t.Errorf("got:\n%swant:\n%s", text, expected)
	}
}

// The worst of several files decides.
func TestVerifyExit(t *testing.T) {
	list := spansOf(t, span{0, 9, 0}, span{10, 20, 0})
	whole, torn := file(t, "whole", list...), file(t, "torn", list[0], list[1][:40])
	missing := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		files []string
		code  int
	}{
		{[]string{whole}, 0}, {[]string{torn, whole}, 1}, {[]string{missing, torn}, 2}, {[]string{whole, missing}, 2}, {[]string{t.TempDir()}, 2}, {nil, 2},
	} {
		if code, _, _ := command(append([]string{"verify"}, c.files...)...); code != c.code {
			t.Errorf("%v: exit %d, want %d", c.files, code, c.code)
		}
	}
}
