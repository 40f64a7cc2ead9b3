package sink

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
	"logboom/syslog"
)

// smallDisk mounts a file system of so many bytes.
func smallDisk(t testing.TB, size int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Skip("no mounting here: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// takeAll leaves room for so many bytes only, and returns the file that is in
// the way.
func takeAll(t testing.TB, dir string, leave int) string {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); err != nil {
			break
		}
	}
	stat, err := f.Stat()
	if err == nil {
		err = f.Truncate(stat.Size() - int64(leave))
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// noise is a line that does not shrink to much less.
func noise(i, size int) string {
	x := uint64(i)*0x9e3779b97f4a7c15 + 1
	b := make([]byte, size)
	for j := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[j] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[x%64]
	}
	return fmt.Sprint(i, " ", string(b))
}

// GZ02, FI06: a full disk takes no message and doubles none. What has no room
// waits in memory, and goes on by itself; two lines tell of it, whatever the
// number of files and tries.
func TestFullDisk(t *testing.T) {
	for _, name := range []string{"x-$program.log.gz", "x-$program.log"} {
		dir := smallDisk(t, 1<<20)
		conf := fileConf(t, filepath.Join(dir, name))
		conf.Limits.Bytes = 32 << 10
		s := start(t, conf)
		e := s.Edge(-1, nil)
		const lines = 400
		want := make(map[string]string)
		ballast := takeAll(t, dir, 50<<10)
		for i := range lines {
			m := message(noise(i, 1000))
			m.Tag = []byte{'a' + byte(i%3)}
			put(t, e, m)
			want[string(m.Tag)] += string(m.Message) + "\n"
		}
		s.Flush()
		eventually(t, "many retries", func() bool { return s.Status().Retries > 20 })
		st := s.Status()
		checkBalance(t, st)
		if st.State != "failing" || st.Buffered == 0 || !strings.Contains(st.LastError, "no space left") {
			t.Errorf("%s: status %+v", name, st)
		}
		for _, name := range names(t, dir) {
			if strings.HasSuffix(name, ".gz") {
				eventually(t, name+" is whole between two tries", func() bool { return isWhole(filepath.Join(dir, name)) })
			}
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		s.delivered(lines)
		st = s.finish()
		for tag, text := range want {
			path := filepath.Join(dir, strings.Replace(name, "$program", tag, 1))
			if got := read(t, path); got != text {
				t.Errorf("%s: %d bytes, want %d", path, len(got), len(text))
			}
			if strings.HasSuffix(path, ".gz") {
				if out, err := exec.Command("gzip", "-t", path).CombinedOutput(); err != nil {
					t.Errorf("gzip -t: %v: %s", err, out)
				}
			}
		}
		if st.State != "ok" || s.log.count("cannot deliver") != 1 || s.log.count("delivering again") != 1 || s.log.count("") != 2 {
			t.Errorf("%s: state %s; log:\n%s", name, st.State, s.log)
		}
	}
}

// FI07: a full disk costs the memory that the sink has, and no more; what
// does not fit is dropped and counted.
func TestFullDiskFillsMemory(t *testing.T) {
	dir := smallDisk(t, 128<<10)
	conf := fileConf(t, filepath.Join(dir, "x.log"))
	conf.Limits.Bytes = 16 << 10
	s := makeSink(t, conf, newArena(t, 256<<10))
	s.run()
	ballast := takeAll(t, dir, 0)
	e := s.Edge(0, nil)
	var sum Tally
	for i := range 10_000 {
		sum.Add(e.Append(new(Origin), []syslog.Message{message(noise(i, 100))}))
	}
	if sum.Accepted+sum.Dropped != 10_000 || sum.Dropped < 5000 || sum.Accepted < 1000 {
		t.Errorf("tally %+v", sum)
	}
	// GZ06: what was made for the first batch is not left behind empty.
	eventually(t, "a retry", func() bool { return s.Status().Retries > 0 })
	eventually(t, "no empty file", func() bool { return len(names(t, dir)) == 1 })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	// There is room for a part of it only.
	eventually(t, "the disk is full again", func() bool { st := s.Status(); return st.Delivered > 500 && st.State == "failing" })
	s.Close()
	close(s.giveUp)
	left := <-s.done
	st := s.Status()
	checkBalance(t, st)
	if lines := strings.Count(read(t, filepath.Join(dir, "x.log")), "\n"); left == 0 || uint64(lines) != st.Delivered || uint64(left) != st.Buffered {
		t.Errorf("%d lines, %d left, status %+v", lines, left, st)
	}
}

// isWhole says that a file holds whole members, or is not there: for the moment
// of a try it may be empty, or longer.
func isWhole(path string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	s := gzipwriter.ScanMembers(bytes.NewReader(data), int64(len(data)))
	for s.Next() {
	}
	return len(data) > 0 && s.Err() == nil
}

// names is what a folder holds.
func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// SE02: below the prefix no symbolic link is followed. What would have gone
// there is lost, and counted; the target is untouched, other paths go on.
func TestSymbolicLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	target := filepath.Join(outside, "passwd")
	content(t, target, []byte("root\n"))
	for link, to := range map[string]string{
		"file": target, "dangling": filepath.Join(outside, "new"), "folder": outside,
	} {
		path := filepath.Join(dir, link)
		if link != "folder" {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			path = filepath.Join(path, "x.log")
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	content(t, filepath.Join(dir, "is-file"), []byte("x\n"))
	if err := os.MkdirAll(filepath.Join(dir, "is-folder/x.log"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, fileConf(t, filepath.Join(dir, "$host/x.log")))
	e := s.Edge(0, nil)
	bad := []string{"file", "dangling", "folder", "is-file", "is-folder"}
	for _, host := range append(bad, "good") {
		put(t, e, fromHost(host, "1"), fromHost(host, "2"))
	}
	st := s.finish()
	if st.Lost[RefusedPath] != uint64(2*len(bad)) || st.Delivered != 2 || st.State != "ok" {
		t.Errorf("status %+v", st)
	}
	if got := read(t, filepath.Join(dir, "good/x.log")); got != "1\n2\n" {
		t.Errorf("%q", got)
	}
	if got := read(t, target); got != "root\n" || len(names(t, outside)) != 1 {
		t.Errorf("the target: %q; beside it: %q", got, names(t, outside))
	}
	if n := s.log.count("messages lost"); n != 2 || s.log.count("") != n {
		t.Errorf("log:\n%s", s.log)
	}
}

// The prefix itself is the operator's: it may be a link, and while it is
// something else, its messages wait until he has mended it.
func TestPrefixIsTheOperators(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	content(t, filepath.Join(dir, "file"), []byte("x"))
	s := start(t, fileConf(t, filepath.Join(dir, "link/$host.log")))
	put(t, s.Edge(0, nil), fromHost("h", "m"))
	s.finish()
	if got := read(t, filepath.Join(dir, "link/h.log")); got != "m\n" {
		t.Errorf("%q", got)
	}

	s = start(t, fileConf(t, filepath.Join(dir, "file/$host.log")))
	put(t, s.Edge(0, nil), fromHost("h", "m"))
	s.Flush()
	eventually(t, "it fails", func() bool { return s.Status().State == "failing" })
	if err := os.Remove(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	s.finish()
	if got := read(t, filepath.Join(dir, "file/h.log")); got != "m\n" {
		t.Errorf("%q", got)
	}
}

// nobody is a user that owns nothing.
const nobody = 65534

// runAsNobody runs the sink with the rights of a user who owns dir: root may
// do what is to fail. Only the runner's thread has them, and ends with it.
func (r *running) runAsNobody(dir string) {
	r.t.Helper()
	if os.Getuid() != 0 {
		r.run()
		return
	}
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		runtime.LockOSThread()
		// The one way to ask what it is now is to set it again.
		if err := unix.Setfsuid(nobody); err != nil {
			r.t.Error(err)
		}
		r.done <- r.Run(r.giveUp)
	}()
}

// FI19: a folder that cannot be entered at the moment of a reopen leaves the
// old files in use, with one line, until it can be again.
func TestReopenLater(t *testing.T) {
	dir := t.TempDir()
	s := makeSink(t, fileConf(t, filepath.Join(dir, "$host.log")), newArena(t, 1<<20))
	s.runAsNobody(dir)
	e := s.Edge(0, nil)
	both := func(text string) {
		put(t, e, fromHost("a", text), fromHost("b", text))
		s.Flush()
	}
	both("1")
	s.delivered(2)
	for _, name := range []string{"a.log", "b.log"} {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, name+".1")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	s.Reopen()
	s.Reopen()
	both("2")
	s.delivered(4)
	if s.log.count("cannot reopen") != 1 || s.log.count("") != 1 {
		t.Errorf("log:\n%s", s.log)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sent := 2
	eventually(t, "the new file is made", func() bool {
		both("later")
		sent++
		s.delivered(2 * sent)
		return len(names(t, dir)) == 4
	})
	s.finish()
	for _, host := range []string{"a", "b"} {
		text := read(t, filepath.Join(dir, host+".log.1")) + read(t, filepath.Join(dir, host+".log"))
		if want := "1\n2\n" + strings.Repeat("later\n", sent-2); text != want {
			t.Errorf("%s: %q, want %q", host, text, want)
		}
	}
	if s.log.count("all files are reopened") != 1 || s.log.count("") != 2 {
		t.Errorf("log:\n%s", s.log)
	}
}

// FI09: where an owner may not be given, nothing with another owner is left,
// and the messages wait.
func TestOwnerNotPermitted(t *testing.T) {
	for _, path := range []string{"x.log", "a/x.log", "$host/x.log"} {
		dir := t.TempDir()
		conf := fileConf(t, filepath.Join(dir, path))
		conf.File.UID = 0
		if os.Getuid() == 0 {
			conf.File.UID = 1
		}
		s := makeSink(t, conf, newArena(t, 1<<20))
		s.runAsNobody(dir)
		put(t, s.Edge(0, nil), fromHost("h", "m"))
		s.Flush()
		eventually(t, "some retries", func() bool { return s.Status().Retries > 2 })
		if all := names(t, dir); len(all) != 0 {
			// One may be there for the moment of a try.
			eventually(t, fmt.Sprint("nothing of ", all), func() bool { return len(names(t, dir)) == 0 })
		}
		if st := s.Status(); !strings.Contains(st.LastError, "owner") || st.Buffered != 1 {
			t.Errorf("%s: status %+v", path, st)
		}
		conf.File.UID = -1
		s.Set(conf) // for what comes from now on
		put(t, s.Edge(0, nil), fromHost("i", "m"))
		s.Close()
		close(s.giveUp)
		<-s.done
		checkBalance(t, s.Status())
	}
}
