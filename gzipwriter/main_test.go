package gzipwriter

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accessLines returns at least n bytes of whole lines as nginx writes them in
// its combined format, some 220 bytes each; the same for the same seed.
func accessLines(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	word := func(of ...string) string { return of[r.IntN(len(of))] }
	segment := func() string {
		return word("api", "v1", "users", "orders", "cart", "products", "search", "static", "img",
			"blog", "login", "account", "checkout", "items", "reviews", "feed", "uploads", "admin")
	}
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d.%d.%d.%d - - [15/Mar/2026:10:%02d:%02d +0000] ", 1+r.IntN(223), r.IntN(256),
			r.IntN(256), r.IntN(256), i/3000%60, i/50%60)
		fmt.Fprintf(&b, "\"%s /%s/%s/%d%s HTTP/1.1\" %s %d ", word("GET", "GET", "GET", "POST"), segment(),
			segment(), r.IntN(1_000_000), word("", "", ".html", ".png", "?page=2"),
			word("200", "200", "200", "304", "404", "302", "500"), r.IntN(100_000))
		fmt.Fprintf(&b, "\"%s\" \"Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.%d Safari/537.36\"\n",
			word("-", "https://www.google.com/", "https://www.example.com/"+segment()+"/"+segment()),
			word("Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64", "Linux; Android 14; K"),
			105+r.IntN(20), r.IntN(60)*61, r.IntN(20)*7)
	}
	return b.Bytes()
}

// batch is one member and its text.
type batch struct {
	text, member []byte
	info         Info
}

// batches makes n members of about size bytes of text each.
func batches(t testing.TB, n, size int) []batch {
	t.Helper()
	w, err := NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]batch, n)
	for i := range list {
		b := &list[i]
		b.text = accessLines(uint64(i), size)
		b.info = Info{
			Messages: uint32(bytes.Count(b.text, []byte("\n"))), First: int64(i) * 1e9, Last: int64(i)*1e9 + 5,
			Arena: 77, Sequence: uint64(i + 1), Dropped: uint32(i % 2),
		}
		m, err := w.Member(b.text, b.info)
		if err != nil {
			t.Fatal(err)
		}
		b.member = bytes.Clone(m)
	}
	return list
}

// join returns what the files of these batches hold: members and text.
func join(list []batch) (members, text []byte) {
	for _, b := range list {
		members = append(members, b.member...)
		text = append(text, b.text...)
	}
	return members, text
}

// foreign is a member as gzip(1) makes it.
func foreign(t testing.TB, name string, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Name = name
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// gunzip is what the standard library reads from a whole file.
func gunzip(t testing.TB, file []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// create makes a file of data, open as a sink has it.
func create(t testing.TB, data []byte) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "x.log.gz"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

// content is what the file of that name holds now.
func content(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
