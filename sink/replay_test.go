package sink

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// intended is a batch of a text and its member, which a process that was
// killed was about to write to the end of the file at path.
func intended(t *testing.T, w *files, path string, spec *File, text string) (*buffer.Batch, []byte) {
	t.Helper()
	b := batch(t, path, spec, text)
	member, err := w.presses.member(b, spec)
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	b.Intent = &buffer.Place{Device: stat.Dev, Inode: stat.Ino, Offset: stat.Size, Length: int64(len(member))}
	return b, bytes.Clone(member)
}

func appendTo(t *testing.T, path string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
}

// What a kill, or somebody after it, may have left of a write: the batch is in
// the file exactly once, and another writer's bytes are as they were.
func TestReplayOfWrite(t *testing.T) {
	for _, name := range []string{"x.log.gz", "x.log.zst", "x.log"} {
		const old, text, other = "old 1\nold 2\n", "ours 1\nours 2\nours 3\n", "other\n"
		plain := filepath.Ext(name) == ".log"
		tests := map[string]struct {
			after func(t *testing.T, path string, member, other []byte)
			want  string
			extra string // in files beside it
		}{
			"not begun":   {func(*testing.T, string, []byte, []byte) {}, old + text, ""},
			"whole":       {func(t *testing.T, path string, m, _ []byte) { appendTo(t, path, m) }, old + text, ""},
			"one byte":    {func(t *testing.T, path string, m, _ []byte) { appendTo(t, path, m[:1]) }, old + text, ""},
			"ten":         {func(t *testing.T, path string, m, _ []byte) { appendTo(t, path, m[:10]) }, old + text, ""},
			"all but one": {func(t *testing.T, path string, m, _ []byte) { appendTo(t, path, m[:len(m)-1]) }, old + text, ""},
			"followed": {func(t *testing.T, path string, m, o []byte) {
				appendTo(t, path, m)
				appendTo(t, path, o)
			}, old + text + other, ""},
			"another's": {func(t *testing.T, path string, _, o []byte) { appendTo(t, path, o) }, old + other + text, ""},
			"renamed, whole": {func(t *testing.T, path string, m, _ []byte) {
				appendTo(t, path, m)
				rename(t, path, path+".1")
			}, "", old + text},
			"renamed, torn": {func(t *testing.T, path string, m, _ []byte) {
				appendTo(t, path, m[:len(m)/2])
				rename(t, path, path+".1")
			}, text, old},
			"replaced": {func(t *testing.T, path string, m, o []byte) {
				appendTo(t, path, m)
				rename(t, path, path+".1")
				if err := os.WriteFile(path, o, 0o600); err != nil {
					t.Fatal(err)
				}
			}, other, old + text},
			"removed":   {func(t *testing.T, path string, _, _ []byte) { os.Remove(path) }, text, ""},
			"truncated": {func(t *testing.T, path string, _, _ []byte) { os.Truncate(path, 0) }, text, ""},
			"rewritten": {func(t *testing.T, path string, _, o []byte) { // the inode is the same
				os.Truncate(path, 0)
				for range 20 {
					appendTo(t, path, o)
				}
			}, "20 others" + text, ""},
		}
		for title, tt := range tests {
			t.Run(name+" "+title, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), name)
				spec := specOf(t, path)
				w := newFiles(new(counters), zerolog.Nop())
				deliverNow(t, w, batch(t, path, spec, old))
				w.Close(nil)
				otherMember := []byte(other)
				if !plain {
					m, err := w.presses.member(batch(t, path, spec, other), spec)
					if err != nil {
						t.Fatal(err)
					}
					otherMember = bytes.Clone(m)
				}
				b, member := intended(t, w, path, spec, text)
				tt.after(t, path, member, otherMember)

				w = newFiles(new(counters), zerolog.Nop())
				deliverNow(t, w, b)
				w.Close(nil)
				want := tt.want
				if want == "20 others"+text {
					want = string(bytes.Repeat([]byte(other), 20)) + text
				}
				got := ""
				if _, err := os.Stat(path); err == nil {
					got = readAny(t, path)
				}
				if got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if tt.extra != "" {
					if got := readAny(t, path+".1"); got != tt.extra {
						t.Errorf("renamed: %q, want %q", got, tt.extra)
					}
				}
				if _, err := os.Stat(path + ".torn"); err == nil {
					t.Error("what was cut off is written again, and was kept too")
				}
			})
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func deliverNow(t *testing.T, w *files, b *buffer.Batch) {
	t.Helper()
	if err := w.Deliver(b, nil); err != nil {
		t.Fatal(err)
	}
}

// readAny is the text of a file of any format, which must be whole.
func readAny(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var text bytes.Buffer
	failed := func(d *gzipwriter.Damage) { t.Errorf("%s: %v", path, d) }
	if err := gzipwriter.NewStreamReader(f).CopyText(&text, func(gzipwriter.Member) bool { return true }, failed); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return text.String()
}

// left is what an arena held whose sink took some messages and did not run.
func left(t *testing.T, conf Config, texts ...string) []buffer.Found {
	t.Helper()
	dir := t.TempDir()
	a, err := buffer.CreateArena(dir, 4<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := New(conf, a, zerolog.Nop())
	for _, text := range texts {
		put(t, s.Edge(0, nil), message(text))
	}
	saved := t.TempDir()
	paths, err := a.Save(saved)
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	l, err := buffer.OpenLeft(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	batches, _ := l.Find()
	t.Cleanup(func() { l.Release() })
	return batches
}

// A sink takes on what one of its name and kind has left, for paths below its
// prefix; nothing else.
func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	gz := fileConf(t, filepath.Join(dir, "in/x.log.gz"))
	forward := Config{Name: gz.Name, Limits: gz.Limits, Memory: 1 << 20, Forward: &Forward{}, Framing: Octets}
	changed := fileConf(t, filepath.Join(dir, "in/y.log.gz"))
	plain := fileConf(t, filepath.Join(dir, "in/x.log"))
	outside := fileConf(t, filepath.Join(dir, "elsewhere/x.log.gz"))
	renamed := gz
	renamed.Name = "another"
	for name, tt := range map[string]struct {
		from, to Config
		want     bool
	}{
		"the same":          {gz, gz, true},
		"another file":      {gz, changed, true},
		"other compression": {gz, plain, true},
		"another folder":    {gz, outside, false},
		"another name":      {gz, renamed, false},
		"another kind":      {gz, forward, false},
		"of a remote":       {forward, forward, true},
		"and for a file":    {forward, gz, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := makeSink(t, tt.to, newArena(t, 16<<20))
			found := left(t, tt.from, "one", "two")
			if len(found) != 1 || s.Adopt(found[0]) != tt.want {
				t.Errorf("%d batches; adopted is not %v", len(found), tt.want)
			}
		})
	}
	t.Run("delivered", func(t *testing.T) {
		s := makeSink(t, changed, newArena(t, 16<<20))
		s.Adopt(left(t, gz, "one", "two")[0])
		s.run()
		put(t, s.Edge(0, nil), message("three"))
		if st := s.finish(); st.Delivered != 3 {
			t.Errorf("%+v", st)
		}
		if got := read(t, filepath.Join(dir, "in/x.log.gz")); got != "one\ntwo\n" {
			t.Errorf("what was left went elsewhere: %q", got)
		}
	})
}

// No key leads out of the prefix, whatever is in it.
func TestIsBelow(t *testing.T) {
	for path, want := range map[string]bool{
		"/p/x": true, "/p/a/b": true, "/p/..x": true,
		"": false, "/p": false, "/p/": false, "/q/x": false, "/p/../q": false, "/p/a/../x": false,
		"x": false, "/p/a\x00b": false, "/p/./x": false, "/px": false,
	} {
		if got := isBelow(path, "/p"); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

// What belongs to no sink becomes text of a file of its own.
func TestAdoptAll(t *testing.T) {
	dir := t.TempDir()
	gz := fileConf(t, filepath.Join(dir, "x.log.gz"))
	forward := Config{Name: "remote", Limits: gz.Limits, Memory: 1 << 20, Forward: &Forward{}, Framing: Octets}
	s := makeSink(t, gz, newArena(t, 16<<20))
	for _, conf := range []Config{gz, forward} {
		conf.Path, _ = ParsePath("/elsewhere/x.log.gz")
		for _, f := range left(t, conf, "one", "two") {
			if !s.AdoptAll(f) {
				t.Error("not adopted")
			}
		}
	}
	s.run()
	s.finish()
	if got := read(t, filepath.Join(dir, "x.log.gz")); got != "one\ntwo\none\ntwo\n" {
		t.Errorf("%q", got)
	}
}

// What was being written to a file whose sink is gone is looked for there: whole
// lines that a plain file has are not written again, and it is left as it is.
func TestAdoptAllWritten(t *testing.T) {
	for name, tt := range map[string]struct{ there, want string }{
		"nothing":      {"", "one\ntwo\n"},
		"a part":       {"one\ntw", "two\n"},
		"all":          {"one\ntwo\n", ""},
		"all and more": {"one\ntwo\nthree\n", ""},
		"another's":    {"eins\n", "one\ntwo\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			old := fileConf(t, filepath.Join(dir, "old/x.log"))
			old.File.Compress = gzipwriter.Plain
			path := filepath.Join(dir, "old/x.log")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("before\n"+tt.there), 0o600); err != nil {
				t.Fatal(err)
			}
			var stat unix.Stat_t
			if err := unix.Stat(path, &stat); err != nil {
				t.Fatal(err)
			}
			f := left(t, old, "one", "two")[0]
			f.Intent = &buffer.Place{Device: stat.Dev, Inode: stat.Ino, Offset: 7, Length: 8}
			s := makeSink(t, fileConf(t, filepath.Join(dir, "recovered.log.gz")), newArena(t, 16<<20))
			if !s.AdoptAll(f) {
				t.Fatal("not adopted")
			}
			s.run()
			if st := s.finish(); st.Delivered != 2 {
				t.Errorf("%+v", st.Stats)
			}
			got := ""
			if _, err := os.Stat(filepath.Join(dir, "recovered.log.gz")); err == nil {
				got = read(t, filepath.Join(dir, "recovered.log.gz"))
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if text, err := os.ReadFile(path); string(text) != "before\n"+tt.there || err != nil {
				t.Errorf("the file is now %q, %v", text, err)
			}
		})
	}
}
