package sink

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"logboom/buffer"
)

// One batch is one member and one write, and its header tells of it.
func TestOneBatchOneMemberOneWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new/folders/x.log.gz")
	conf := fileConf(t, path)
	conf.Limits.Messages = 10
	s := start(t, conf)
	e := s.Edge(0, nil)
	want := ""
	for i := range 95 {
		text := fmt.Sprintf("line %d", i)
		put(t, e, message(text))
		want += text + "\n"
	}
	st := s.finish()
	all := members(t, path)
	if len(all) != 10 || st.Writes != 10 || st.Batches[buffer.ByMessages] != 9 || st.Batches[buffer.ByShutdown] != 1 {
		t.Errorf("%d members, %d writes, batches %v", len(all), st.Writes, st.Batches)
	}
	for i, m := range all {
		if n := min(10, 95-10*i); int(m.Info.Messages) != n || !m.Ours || m.Info.Sequence != uint64(i+1) || m.Info.First > m.Info.Last {
			t.Errorf("member %d: %+v", i, m.Info)
		}
	}
	if got := read(t, path); got != want || st.DeliveredBytes != uint64(len(want)) {
		t.Errorf("%d bytes, want %d; %d delivered", len(got), len(want), st.DeliveredBytes)
	}
}

// GZ06: what nothing was written to is not there.
func TestNoEmptyFile(t *testing.T) {
	dir := t.TempDir()
	s := start(t, fileConf(t, filepath.Join(dir, "x.log.gz")))
	s.Flush()
	s.Reopen()
	s.Flush()
	st := s.finish()
	if all := filesBelow(t, dir); len(all) != 0 || st.Writes != 0 {
		t.Errorf("%q, %d writes", all, st.Writes)
	}
}

// FI09: modes and owner are exact, whatever the umask is.
func TestModesAndOwner(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	base := t.TempDir()
	conf := fileConf(t, filepath.Join(base, "a/b/$host/c/x.log"))
	conf.File.Mode, conf.File.DirMode = 0o664, 0o751
	conf.File.UID, conf.File.GID = os.Getuid(), os.Getgid()
	if os.Getuid() == 0 {
		conf.File.UID, conf.File.GID = 1234, 4
	}
	s := start(t, conf)
	put(t, s.Edge(0, nil), fromHost("h", "m"))
	s.finish()
	for name, mode := range map[string]os.FileMode{
		"a": 0o751, "a/b": 0o751, "a/b/h": 0o751, "a/b/h/c": 0o751, "a/b/h/c/x.log": 0o664,
	} {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(base, name), &stat); err != nil {
			t.Fatal(err)
		}
		if got := os.FileMode(stat.Mode & 0o7777); got != mode || int(stat.Uid) != conf.File.UID || int(stat.Gid) != conf.File.GID {
			t.Errorf("%s: mode %#o, owner %d, group %d", name, got, stat.Uid, stat.Gid)
		}
	}
}

// load appends numbered lines from several sources until it is stopped.
type load struct {
	stop chan struct{}
	all  sync.WaitGroup
	sent [3]int
}

func startLoad(t testing.TB, s *Sink) *load {
	l := &load{stop: make(chan struct{})}
	for source := range l.sent {
		l.all.Go(func() {
			e := s.Edge(-1, nil)
			for ; !ended(l.stop); l.sent[source]++ {
				put(t, e, message(fmt.Sprintf("%d %d", source, l.sent[source])))
				if l.sent[source]%50 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	return l
}

func (l *load) end() {
	close(l.stop)
	l.all.Wait()
}

// check finds every line once, and those of a source in order within a file.
func (l *load) check(t testing.TB, paths ...string) {
	t.Helper()
	seen := make(map[string]bool)
	for _, path := range paths {
		var last [3]int
		for line := range strings.Lines(read(t, path)) {
			var source, n int
			if _, err := fmt.Sscanf(line, "%d %d\n", &source, &n); err != nil {
				t.Fatalf("%s: line %q", path, line)
			}
			if seen[line] || n < last[source] {
				t.Fatalf("%s: line %q is there twice or late", path, line)
			}
			seen[line], last[source] = true, n
		}
	}
	if want := l.sent[0] + l.sent[1] + l.sent[2]; len(seen) != want {
		t.Errorf("%d lines of %d", len(seen), want)
	}
}

// GZ03: three sources write to one path that is reopened all the time.
func TestReopenOften(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log.gz")
	conf := fileConf(t, path)
	conf.Limits.Flush = time.Millisecond
	s := start(t, conf)
	l := startLoad(t, s.Sink)
	for range 200 {
		s.Reopen()
		time.Sleep(time.Millisecond)
	}
	l.end()
	s.finish()
	l.check(t, path)
	members(t, path)
}

// GZ04, FI01: the file is renamed and reopened 50 times under load. All files
// are whole, their lines are those sent, and no old descriptor is kept.
func TestRenameAndReopen(t *testing.T) {
	for _, name := range []string{"x.log.gz", "x.log"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		conf := fileConf(t, path)
		conf.Limits.Flush = time.Millisecond
		s := start(t, conf)
		l := startLoad(t, s.Sink)
		paths := []string{path}
		for i := range 50 {
			eventually(t, "the file is made", func() bool { _, err := os.Lstat(path); return err == nil })
			old := filepath.Join(dir, fmt.Sprintf("%02d.%s", i, name))
			if err := os.Rename(path, old); err != nil {
				t.Fatal(err)
			}
			s.Reopen()
			paths = append(paths, old)
		}
		eventually(t, "the last file is made", func() bool { _, err := os.Lstat(path); return err == nil })
		for _, old := range paths[1:] {
			if n := descriptorsOf(t, old); n != 0 {
				t.Errorf("%s is open %d times", old, n)
			}
		}
		l.end()
		s.finish()
		if n := len(filesBelow(t, dir)); n != 51 {
			t.Errorf("%d files", n)
		}
		l.check(t, paths...)
	}
}

// descriptorsOf is how many descriptors of this process lead to a file.
func descriptorsOf(t testing.TB, path string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.TrimSuffix(to, " (deleted)") == path {
			n++
		}
	}
	return n
}

// FI03: a path of an earlier config is not made again. FI22: nor is its file
// kept open once another has followed it.
func TestOldPathStaysAway(t *testing.T) {
	dir := t.TempDir()
	old, path := filepath.Join(dir, "old/x.log"), filepath.Join(dir, "new/x.log")
	conf := fileConf(t, old)
	s := start(t, conf)
	e := s.Edge(0, nil)
	put(t, e, message("1"))
	s.Flush()
	s.delivered(1)
	conf.Path = mustPath(t, path)
	s.Set(conf)
	put(t, e, message("2"))
	s.Flush()
	s.delivered(2)
	if n := descriptorsOf(t, old); n != 0 {
		t.Errorf("the old file is open %d times", n)
	}
	if err := os.RemoveAll(filepath.Dir(old)); err != nil {
		t.Fatal(err)
	}
	s.Reopen()
	put(t, e, message("3"))
	s.finish()
	if got := filesBelow(t, dir); len(got) != 1 || read(t, path) != "2\n3\n" {
		t.Errorf("%q", got)
	}
}

// A file whose name leads to nothing is made again, its folder too.
func TestReopenAfterRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a/$host/x.log")
	s := start(t, fileConf(t, path))
	e := s.Edge(0, nil)
	path = strings.Replace(path, "$host", "h", 1)
	put(t, e, fromHost("h", "1"))
	s.Flush()
	s.delivered(1)
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	s.Reopen()
	put(t, e, fromHost("h", "2"))
	s.finish()
	if got := read(t, path); got != "2\n" {
		t.Errorf("%q", got)
	}
}

// FI04: after a truncation from outside writing goes on at the new end.
func TestCopyTruncate(t *testing.T) {
	for _, name := range []string{"x.log", "x.log.gz"} {
		path := filepath.Join(t.TempDir(), name)
		s := start(t, fileConf(t, path))
		e := s.Edge(0, nil)
		for range 10 {
			put(t, e, message(strings.Repeat("x", 100_000)))
		}
		s.Flush()
		s.delivered(10)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		put(t, e, message("after"))
		s.finish()
		if got := read(t, path); got != "after\n" {
			t.Errorf("%s: %d bytes: %.20q", name, len(got), got)
		}
	}
}

// FI05, FI16: thousands of paths share a few descriptors, and give all back,
// goroutines too.
func TestManyPaths(t *testing.T) {
	const hosts, each, most = 2000, 10, 50
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "$host/x.log.gz"))
	conf.File.MaxOpen, conf.Limits.Messages = most, 3
	arena := newArena(t, 16<<20)
	goroutines, before := runtime.NumGoroutine(), descriptors(t)
	s := makeSink(t, conf, arena)
	s.run()
	e := s.Edge(-1, nil)
	order := rand.New(rand.NewPCG(1, 2)).Perm(hosts * each)
	for i, n := range order {
		put(t, e, fromHost(fmt.Sprint("host", n%hosts), fmt.Sprint(n)))
		if i%1000 == 0 {
			// The folders that a path is found by, and the listing here, are open too.
			if now := descriptors(t); now > before+most+5 {
				t.Fatalf("%d descriptors, %d before", now, before)
			}
		}
	}
	s.finish()
	paths, lines := filesBelow(t, dir), 0
	for _, path := range paths {
		for line := range strings.Lines(read(t, path)) {
			var n int
			if _, err := fmt.Sscan(line, &n); err != nil || !strings.HasSuffix(path, fmt.Sprintf("/host%d/x.log.gz", n%hosts)) {
				t.Fatalf("%s: line %q", path, line)
			}
			lines++
		}
	}
	if len(paths) != hosts || lines != hosts*each {
		t.Errorf("%d files, %d lines", len(paths), lines)
	}
	if now := descriptors(t); now != before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
	eventually(t, "goroutines back to where they were", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// Names beyond max_new_files go to one file, and none of their lines is lost.
func TestOverflow(t *testing.T) {
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "$host/x.log"))
	conf.MaxNewFiles = 3
	s := start(t, conf)
	e := s.Edge(0, nil)
	at := time.Now()
	for i := range 40 {
		m := fromHost(fmt.Sprint(i%10), "m")
		m.Received = at // of one minute
		put(t, e, m)
	}
	st := s.finish()
	if n := strings.Count(read(t, filepath.Join(dir, "_overflow.log")), "m\n"); n != 28 || st.Overflowed != 28 || st.Delivered != 40 {
		t.Errorf("%d lines, status %+v", n, st)
	}
	if n := len(filesBelow(t, dir)); n != 4 || s.log.count("max_new_files") != 1 {
		t.Errorf("%d files; log:\n%s", n, s.log)
	}
}

// Names that were there before do not count for max_new_files: as a file, as
// one of another day, as one that was rotated, or as a folder.
func TestExistingNamesAreNotNew(t *testing.T) {
	now := time.Now()
	for path, there := range map[string]string{ // of host h
		"$host.log":                      "h.log",
		"$host/x-%Y-%m-%d.log.gz":        "h/other",
		"$host-%Y-%m-%d.log":             "h-2020-01-02.log",
		"%Y/%m/$host/a/$program-%d.log":  now.Format("2006/01") + "/h/a/app-01.log",
		"all/$host.$program.log.gz":      "all/" + rotatedName("h.app.log.gz", now, 3),
		"v-%s/in-$host-at-%H/$host/file": "v-12345/in-h-at-07/h/",
	} {
		t.Run(strings.NewReplacer("$", "", "%", "").Replace(path), func(t *testing.T) { // the folder is named after it
			dir := t.TempDir()
			const hosts = 20
			name := func(host int, there string) string {
				return strings.NewReplacer("h.", fmt.Sprint("host", host, "."), "h-", fmt.Sprint("host", host, "-"), "h/", fmt.Sprint("host", host, "/")).Replace(there)
			}
			for i := range hosts {
				file := filepath.Join(dir, name(i, there))
				folder := filepath.Dir(file)
				if strings.HasSuffix(there, "/") {
					folder = file
				}
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if folder != file {
					if err := os.WriteFile(file, nil, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			conf := fileConf(t, filepath.Join(dir, path))
			conf.MaxNewFiles = 3
			s := start(t, conf)
			e := s.Edge(0, nil)
			for i := range hosts + 5 { // five that are new
				m := fromHost(fmt.Sprint("host", i), "m")
				m.Tag, m.Received = []byte("app"), now
				put(t, e, m)
			}
			if st := s.finish(); st.Overflowed != 2 || st.Delivered != hosts+5 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// content makes a file as one who wrote it before left it.
func content(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o640); err != nil {
		t.Fatal(err)
	}
}

// What a file held before is kept: a torn tail is cut off beside it, a file
// that is no gzip is set aside, half a line is ended.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log.gz")
	deliver := func(path, text string) *running {
		s := start(t, fileConf(t, path))
		put(t, s.Edge(0, nil), message(text))
		s.finish()
		return s
	}
	deliver(path, "1")
	deliver(path, "2")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content(t, path, whole[:len(whole)-5])
	s := deliver(path, "3")
	if got := read(t, path); got != "1\n3\n" || s.log.count("torn") != 1 {
		t.Errorf("%q; log:\n%s", got, s.log)
	}
	torn, err := os.ReadFile(path + ".torn")
	if err != nil || !bytes.HasSuffix(whole[:len(whole)-5], torn) || len(torn) < 10 {
		t.Errorf("torn: %d bytes, %v", len(torn), err)
	}

	for i, aside := range []string{path + ".damaged", path + ".damaged.1"} {
		content(t, path, []byte("no gzip at all, and not ours to cut"))
		s = deliver(path, "4")
		if got := read(t, path); got != "4\n" || s.log.count("set aside") != 1 {
			t.Errorf("%q; log:\n%s", got, s.log)
		}
		if got, err := os.ReadFile(aside); err != nil || !strings.HasPrefix(string(got), "no gzip") {
			t.Errorf("%d: set aside: %q, %v", i, got, err)
		}
	}

	plain := filepath.Join(dir, "x.log")
	content(t, plain, []byte("a whole line\nhalf a"))
	deliver(plain, "5")
	deliver(plain, "6")
	if got := read(t, plain); got != "a whole line\nhalf a\n5\n6\n" {
		t.Errorf("%q", got)
	}
}

// A file that was closed for others and not touched since is not read again.
func TestRepairOnlyWhenNeeded(t *testing.T) {
	dir := t.TempDir()
	conf := fileConf(t, filepath.Join(dir, "$host.log.gz"))
	conf.File.MaxOpen, conf.Limits.Messages = 1, 1
	s := start(t, conf)
	e := s.Edge(0, nil)
	put(t, e, fromHost("a", "1"), fromHost("b", "2"))
	s.delivered(2) // b is open, and a was closed for it
	path := filepath.Join(dir, "a.log.gz")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	first := []byte{0}
	if _, err := f.WriteAt(first, 0); err != nil { // the same length, but no gzip
		t.Fatal(err)
	}
	put(t, e, fromHost("a", "3"))
	s.delivered(3)
	if got, err := os.Stat(path); err != nil || got.Size() <= stat.Size() {
		t.Errorf("a file of the length that we left was looked through: %v, %v", got, err)
	}
	put(t, e, fromHost("b", "4"))
	s.delivered(4)
	if _, err := f.WriteAt([]byte("garbage"), 10_000); err != nil {
		t.Fatal(err)
	}
	put(t, e, fromHost("a", "5"))
	s.finish()
	if s.log.count("set aside") != 1 || read(t, path) != "5\n" {
		t.Errorf("a file of another length was not looked through; log:\n%s", s.log)
	}
}

// One path has one writer; the other waits, and says so once.
func TestOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log.gz")
	first, second := start(t, fileConf(t, path)), start(t, fileConf(t, path))
	put(t, first.Edge(0, nil), message("1"))
	first.Flush()
	first.delivered(1)
	put(t, second.Edge(0, nil), message("2"))
	second.Flush()
	eventually(t, "three retries", func() bool { return second.Status().Retries >= 3 })
	first.finish()
	second.finish()
	if got := read(t, path); got != "1\n2\n" {
		t.Errorf("%q", got)
	}
	if second.log.count("") != 2 || !strings.Contains(second.log.String(), "another writer has it") {
		t.Errorf("log:\n%s", second.log)
	}
}
