package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
)

// ours makes a file as logboom would, last written to so long ago.
func ours(t testing.TB, path string, size int, age time.Duration) {
	t.Helper()
	spec := specOf(t, path)
	spec.Keep.Files = 1 // so that plain ones are marked
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	w := newFiles(new(counters), zerolog.Nop())
	f, err := w.file(path, spec, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	member, err := w.presses.member(batch(t, path, spec, strings.Repeat("x", max(size, 1))), spec)
	if err == nil {
		_, err = gzipwriter.AppendFile(f.out, member)
		f.made = false
	}
	if err == nil {
		err = w.Close(nil)
	}
	if err == nil {
		err = os.Chtimes(path, time.Time{}, time.Now().Add(-age))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// remaining runs one pass over all, or over the line of a path, and returns
// what is left of the files, relative to the folder.
func remaining(t testing.TB, dir, template, of string, keep Keep) []string {
	t.Helper()
	spec := specOf(t, filepath.Join(dir, template))
	spec.Keep = keep
	r := &retainer{log: zerolog.New(zerolog.NewTestWriter(t)), stop: make(chan struct{})}
	for _, family := range spec.families {
		want := request{spec: spec, family: family}
		if of != "" {
			if want.line = family.line(filepath.Join(dir, of)); want.line == nil {
				continue
			}
		}
		r.pass(want)
	}
	var left []string
	for _, path := range filesBelow(t, dir) {
		name, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, name)
	}
	return left
}

// Each bound is that of one line of descent, and leaves the newest file alone.
func TestKeep(t *testing.T) {
	stamped := func(i int) string { return fmt.Sprintf("x-2026-03-15T10-20-%02d.log.gz", i) }
	for _, tt := range []struct {
		name string
		keep Keep
		left []string
	}{
		{"none", Keep{}, []string{"x.log.gz", stamped(0), stamped(1), stamped(2), stamped(3)}},
		{"files", Keep{Files: 2}, []string{"x.log.gz", stamped(0), stamped(1)}},
		{"bytes", Keep{Bytes: 200}, []string{"x.log.gz", stamped(0), stamped(1)}},
		{"age", Keep{Age: 150 * time.Minute}, []string{"x.log.gz", stamped(0), stamped(1)}},
		{"age of all", Keep{Age: time.Nanosecond}, nil},
		{"the narrowest", Keep{Files: 3, Bytes: 200, Age: 90 * time.Minute}, []string{"x.log.gz", stamped(0)}},
		{"wide", Keep{Files: 4, Bytes: 1 << 20, Age: day}, []string{"x.log.gz", stamped(0), stamped(1), stamped(2), stamped(3)}},
	} {
		dir := t.TempDir()
		ours(t, filepath.Join(dir, "x.log.gz"), 1, 0)
		for i := range 4 {
			ours(t, filepath.Join(dir, stamped(i)), 1, time.Duration(i+1)*time.Hour)
		}
		slices.Sort(tt.left)
		if got := remaining(t, dir, "x.log.gz", "", tt.keep); !slices.Equal(got, tt.left) {
			t.Errorf("%s: left are %q, want %q", tt.name, got, tt.left)
		}
	}
}

// Values of variables are lines of their own; a pass over one leaves the
// others alone; folders that are empty are removed.
func TestKeepByLine(t *testing.T) {
	make := func(t *testing.T) string {
		dir := t.TempDir()
		for _, host := range []string{"a", "b"} {
			for d := range 3 {
				ours(t, filepath.Join(dir, host, fmt.Sprintf("2026-03-%02d/x.log.gz", d+10)), 1, time.Duration(10-d)*day)
			}
		}
		return dir
	}
	const template = "$host/%Y-%m-%d/x.log.gz"
	dir := make(t)
	if got, want := remaining(t, dir, template, "", Keep{Files: 1}), []string{
		"a/2026-03-11/x.log.gz", "a/2026-03-12/x.log.gz", "b/2026-03-11/x.log.gz", "b/2026-03-12/x.log.gz",
	}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if got := names(t, filepath.Join(dir, "a")); !slices.Equal(got, []string{"2026-03-11", "2026-03-12"}) {
		t.Errorf("folders %q", got)
	}
	dir = make(t)
	if got, want := remaining(t, dir, template, "b/2026-03-12/x.log.gz", Keep{Age: day}), []string{
		"a/2026-03-10/x.log.gz", "a/2026-03-11/x.log.gz", "a/2026-03-12/x.log.gz",
	}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"a"}) {
		t.Errorf("folders %q", got)
	}
}

// The overflow file is a line of its own: what senders invent cannot fill the
// disk by way of it.
func TestKeepOfOverflow(t *testing.T) {
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "$host/x.log.gz"))
	conf.Limits.Messages, conf.MaxNewFiles = 1, 1
	conf.File.Rotate.Size, conf.File.Keep.Files = 1, 2
	s := start(t, conf)
	e := s.Edge(-1, nil)
	received := time.Now() // of one minute
	for i := range 20 {
		m := fromHost(fmt.Sprint("host", i), "m")
		m.Received = received
		put(t, e, m)
	}
	s.delivered(20)
	eventually(t, "two rotated files are left", func() bool { return len(rotatedOf(t, filepath.Join(dir, "_overflow.log.gz"))) == 2 })
	s.finish()
	if all := filesBelow(t, dir); len(all) != 4 { // with the live one, and host0's
		t.Errorf("left are %q", all)
	}
}

// What logboom did not make, what another name has, and what is being written
// stays, whatever its age; it does not count either.
func TestKeepOfOthers(t *testing.T) {
	for _, ext := range []string{".log", ".log.gz", ".log.zst"} {
		dir := t.TempDir()
		old := 100 * day
		name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("x-2026-03-15T10-20-%02d%s", i, ext)) }
		for i := range 5 {
			ours(t, name(i), 1, time.Duration(i+1)*time.Hour)
		}
		theirs := []string{name(50), name(51), filepath.Join(dir, "x"+ext+".1"), filepath.Join(dir, "y"+ext), filepath.Join(dir, "x"+ext+".torn")}
		for _, path := range theirs[:3] {
			content(t, path, []byte("a text of another"))
		}
		ours(t, theirs[3], 1, old)
		ours(t, theirs[4], 1, old)
		for _, path := range theirs {
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(-old)); err != nil {
				t.Fatal(err)
			}
		}
		outside := filepath.Join(t.TempDir(), "victim")
		ours(t, outside, 1, old)
		if err := os.Symlink(outside, name(52)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(name(53), 0o700); err != nil {
			t.Fatal(err)
		}
		locked, err := os.Open(name(4))
		if err != nil {
			t.Fatal(err)
		}
		defer locked.Close()
		if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		want := []string{name(0), name(1), name(2), name(4)}
		want = append(want, theirs...)
		var got []string
		for _, path := range remaining(t, dir, "x"+ext, "", Keep{Files: 2}) {
			got = append(got, filepath.Join(dir, path))
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("left are %q,\nwant %q", got, want)
		}
		for _, path := range []string{outside, name(52), name(53)} {
			if _, err := os.Lstat(path); err != nil {
				t.Error(err)
			}
		}
	}
}

// A line of descent keeps its bound while it is rotated, without the writer's
// doing; and the file that is written is never removed.
func TestKeepWhileWriting(t *testing.T) {
	for _, name := range []string{"x.log", "x.log.gz"} {
		path := filepath.Join(t.TempDir(), name)
		conf := fileConf(t, path)
		conf.Limits.Messages = 1
		conf.File.Rotate.Size, conf.File.Keep.Files = 1, 3
		s := start(t, conf)
		e := s.Edge(-1, nil)
		for i := range 50 {
			put(t, e, message(fmt.Sprint(i)))
		}
		s.delivered(50)
		eventually(t, "three rotated files are left", func() bool { return len(rotatedOf(t, path)) == 3 })
		s.finish()
		// Of names that were free again the order is not that of time.
		got := strings.Fields(readAll(t, append(rotatedOf(t, path), path)...))
		if slices.Sort(got); !slices.Equal(got, []string{"46", "47", "48", "49"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Once an hour, while something is written, those are found too whose line is
// not; nothing wakes an idle sink.
func TestKeepEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		conf := fileConf(t, filepath.Join(dir, "$host.log.gz"))
		conf.Limits.Messages = 1
		conf.File.Keep.Age = 10 * day
		s := start(t, conf)
		e := s.Edge(-1, nil)
		gone := filepath.Join(dir, "gone.log.gz")
		ours(t, gone, 1, 9*day)
		exists := func() bool { _, err := os.Lstat(gone); return err == nil }
		put(t, e, fromHost("a", "1"))
		synctest.Wait()
		time.Sleep(2 * day) // too old by now
		synctest.Wait()
		if !exists() {
			t.Error("removed by an idle sink")
		}
		put(t, e, fromHost("a", "2"))
		synctest.Wait()
		for deadline := time.Now().Add(time.Minute); exists() && time.Now().Before(deadline); time.Sleep(time.Second) {
		}
		if exists() {
			t.Error("not removed while another file is written")
		}
		s.finish()
	})
}
