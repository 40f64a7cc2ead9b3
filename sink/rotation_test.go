package sink

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// rotatedOf are the files that were rotated from a path, the oldest first.
func rotatedOf(t testing.TB, path string) (all []string) {
	t.Helper()
	for _, other := range filesBelow(t, filepath.Dir(path)) {
		original, ok := originalName(filepath.Base(other))
		if ok && original == filepath.Base(path) {
			all = append(all, other)
		}
	}
	// Of names of the same second -10 is after -9.
	slices.SortFunc(all, func(a, b string) int { return sortKey(a).Compare(sortKey(b)) })
	return all
}

func sortKey(path string) time.Time {
	stem, _ := splitName(filepath.Base(path))
	n := 0
	if _, err := time.Parse(stampLayout, stem[max(0, len(stem)-len(stampLayout)):]); err != nil {
		i := strings.LastIndexByte(stem, '-')
		n, _ = strconv.Atoi(stem[i+1:])
		stem = stem[:i]
	}
	at, _ := time.Parse(stampLayout, stem[len(stem)-len(stampLayout):])
	return at.Add(time.Duration(n))
}

// readAll is the text of files of any kind, one after the other.
func readAll(t testing.TB, paths ...string) string {
	t.Helper()
	var all strings.Builder
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		r := gzipwriter.NewStreamReader(f)
		err = r.CopyText(&all, nil, func(d *gzipwriter.Damage) { t.Errorf("%s: %v", path, d) })
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// By size: no file is longer, unless a single batch is; no line is split or
// lost; and the rotated names of one second do not clash.
func TestRotateBySize(t *testing.T) {
	for _, name := range []string{"x.log", "x.log.gz", "x.log.zst"} {
		path := filepath.Join(t.TempDir(), name)
		conf := fileConf(t, path)
		conf.Limits.Messages = 10
		conf.File.Rotate.Size = 10_000
		s := start(t, conf)
		e := s.Edge(-1, nil)
		want := ""
		for i := range 400 {
			text := noise(i, 100)
			if i/10 == 20 { // a batch that is longer than a file
				text = noise(i, 2000)
			}
			put(t, e, message(text))
			want += text + "\n"
		}
		s.finish()
		paths := append(rotatedOf(t, path), path)
		if len(paths) < 4 || len(filesBelow(t, filepath.Dir(path))) != len(paths) {
			t.Errorf("%s: files %q", name, paths)
		}
		long := 0
		for _, path := range paths {
			stat, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if stat.Size() > 10_000 {
				long++
			}
		}
		if long != 1 {
			t.Errorf("%s: %d files are longer than a file may be, of %d", name, long, len(paths))
		}
		if got := readAll(t, paths...); got != want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(want))
		}
	}
}

// By time: the first batch of a new period begins a new file; a restart goes
// by what the file holds.
func TestRotateByTime(t *testing.T) {
	noon := time.Date(2026, 3, 15, 12, 0, 0, 0, time.Local)
	for _, name := range []string{"x.log", "x.log.gz", "x.log.zst"} {
		path := filepath.Join(t.TempDir(), name)
		conf := fileConf(t, path)
		conf.Limits.Messages = 1
		conf.File.Rotate.Every = time.Hour
		deliver := func(after ...time.Duration) {
			s := start(t, conf)
			e := s.Edge(-1, nil)
			for _, after := range after {
				m := message(after.String())
				m.Received = noon.Add(after)
				put(t, e, m)
			}
			s.finish()
		}
		deliver(0, 59*time.Minute, time.Hour, 90*time.Minute)
		if name == "x.log" { // which tells by nothing but its time of modification
			if err := os.Chtimes(path, time.Time{}, noon.Add(90*time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		deliver(100*time.Minute, 2*time.Hour)
		paths := append(rotatedOf(t, path), path)
		var got []string
		for _, path := range paths {
			got = append(got, strings.ReplaceAll(readAll(t, path), "\n", " "))
		}
		want := []string{"0s 59m0s ", "1h0m0s 1h30m0s 1h40m0s ", "2h0m0s "}
		if !slices.Equal(got, want) {
			t.Errorf("%s: files %q hold %q, want %q", name, paths, got, want)
		}
	}
}

// An unrelated file that has the rotated name is never overwritten.
func TestRotateOverNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	now := time.Now()
	theirs := make(map[string]bool)
	for i := range 30 {
		name := filepath.Join(dir, rotatedName("x.log", now.Add(time.Duration(i)*time.Second), 0))
		content(t, name, []byte("theirs\n"))
		theirs[name] = true
	}
	conf := fileConf(t, path)
	conf.Limits.Messages, conf.File.Rotate.Size = 1, 1
	s := start(t, conf)
	put(t, s.Edge(-1, nil), message("1"), message("2"), message("3"))
	s.finish()
	ours := 0
	for _, name := range rotatedOf(t, path) {
		if text := read(t, name); theirs[name] != (text == "theirs\n") {
			t.Errorf("%s: %q", name, text)
		}
		if !theirs[name] {
			ours++
		}
	}
	if ours != 2 {
		t.Errorf("%d rotated files", ours)
	}
}

// What is empty is not rotated, whoever made or emptied it (FI04).
func TestRotateNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	content(t, path, nil)
	w := newFiles(new(counters), zerolog.Nop())
	spec := specOf(t, path)
	spec.Rotate = Rotate{Size: 1, Every: time.Second}
	put := func(text string, after time.Duration) {
		t.Helper()
		b := batch(t, path, spec, text)
		b.First = b.First.Add(after)
		if err := w.Deliver(b, nil); err != nil {
			t.Fatal(err)
		}
	}
	put("1\n", time.Hour)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	put("2\n", 2*time.Hour)
	if err := w.Close(nil); err != nil {
		t.Error(err)
	}
	if got := rotatedOf(t, path); len(got) != 0 || read(t, path) != "2\n" {
		t.Errorf("%q, %q", got, read(t, path))
	}
}

// A reload changes how files that are open end, and where the link is.
func TestRotateAfterSet(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	conf := fileConf(t, path)
	conf.Limits.Messages = 1
	s := start(t, conf)
	e := s.Edge(-1, nil)
	put(t, e, message("1"), message("2"))
	s.delivered(2)
	conf.File.Rotate.Every, conf.File.Symlink = time.Hour, filepath.Join(dir, "current")
	s.Set(conf)
	put(t, e, message("3"))
	s.delivered(3)
	if to, err := os.Readlink(conf.File.Symlink); err != nil || to != "x.log" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	later := message("4")
	later.Received = later.Received.Add(time.Hour)
	put(t, e, later)
	s.delivered(4)
	conf.File.Rotate = Rotate{Size: 3}
	s.Set(conf)
	put(t, e, message("5"))
	s.finish()
	var got []string
	for _, path := range append(rotatedOf(t, path), path) {
		got = append(got, read(t, path))
	}
	if !slices.Equal(got, []string{"1\n2\n3\n", "4\n", "5\n"}) {
		t.Errorf("%q", got)
	}
}

// What is no regular file is not rotated (FI18).
func TestRotateNoFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conf := fileConf(t, path)
	conf.Limits.Messages, conf.File.Rotate = 1, Rotate{Size: 1, Every: time.Second}
	s := start(t, conf)
	m := message("2")
	m.Received = m.Received.Add(time.Hour)
	put(t, s.Edge(-1, nil), message("1"), m)
	s.finish()
	got := make([]byte, 10)
	if n, err := r.Read(got); err != nil || string(got[:n]) != "1\n2\n" {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// A step that fails holds no message up: the old file goes on, it is said
// once, and the rotation is made when it can be.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	log := new(logbook)
	w := newFiles(new(counters), zerolog.New(log))
	spec := specOf(t, path)
	spec.Rotate.Size = 1
	put := func(text string) {
		t.Helper()
		if err := w.Deliver(batch(t, path, spec, text), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("1\n")
	for i, step := range rotationSteps {
		// Steps are tried from the first on: one that fails comes after those before it.
		w.steps = slices.Clone(rotationSteps)
		w.steps[i].do = func(*files, *file) error { return errors.New("not now") }
		w.open[path].Value.(*file).rotateAt = time.Time{}
		put("still\n")
		put("still\n") // within the second: not tried
		if got := rotatedOf(t, path); len(got) != i {
			t.Errorf("with the step %s failing: %q", step.name, got)
		}
		w.steps = rotationSteps
		w.open[path].Value.(*file).rotateAt = time.Time{}
		put("new\n")
		if got := rotatedOf(t, path); len(got) != i+1 || read(t, path) != "new\n" {
			t.Errorf("after the step %s failed: %q, %q", step.name, got, read(t, path))
		}
		if n := log.count("cannot rotate"); n != i+1 || log.count("rotating again") != i+1 {
			t.Errorf("log:\n%s", log)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Error(err)
	}
	if got, want := readAll(t, append(rotatedOf(t, path), path)...), "1\nstill\nstill\nnew\nstill\nstill\nnew\nstill\nstill\nnew\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// specOf is how a file of a path is written, as New has it of a config.
func specOf(t testing.TB, path string) *File {
	t.Helper()
	p := mustPath(t, path)
	return &File{
		Prefix: p.Prefix(), Compress: compressionOf(path), Level: 1, Mode: 0o640, DirMode: 0o750, UID: -1, GID: -1, MaxOpen: 10,
		families: familiesOf(p), timed: p.variables && p.marks,
	}
}

// batch is one of the text, received now.
func batch(t testing.TB, path string, spec *File, text string) *buffer.Batch {
	t.Helper()
	b := buffer.New("s", newArena(t, 1<<20).Share(0), buffer.Limits{Messages: 1, Bytes: 1 << 20, Flush: time.Hour})
	b.Begin()
	b.SetSpec(buffer.Limits{Messages: 1, Bytes: 1 << 20, Flush: time.Hour}, spec)
	b.Append([]byte(path), []byte(text), false, time.Now())
	b.End()
	bt, _ := b.Next()
	return bt
}

// A kill after any step loses nothing, and the next start makes up for what
// was not done.
func TestKillInRotation(t *testing.T) {
	const killedIn = "LOGBOOM_TEST_KILLED_IN"
	if where := os.Getenv(killedIn); where != "" {
		dir, after, _ := strings.Cut(where, ":")
		n, err := strconv.Atoi(after)
		if err != nil {
			t.Fatal(err)
		}
		rotateAndDie(t, dir, n)
	}
	steps := len(rotationSteps) + 3 // open, write and symlink, sync folder
	for n := range steps + 1 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillInRotation$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", killedIn, dir, n))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("killed after %d steps: %v\n%s", n, err, out)
		}
		path := filepath.Join(dir, "x.log.gz")
		s := start(t, killConf(t, dir))
		put(t, s.Edge(-1, nil), message("after"))
		s.finish()
		got := readAll(t, append(rotatedOf(t, path), path)...)
		want := "before\nafter\n"
		if n > len(rotationSteps)+1 { // the batch is written when the symbolic link is set
			want = "before\nfor\nafter\n"
		}
		if got != want {
			t.Errorf("killed after %d steps: %q, want %q", n, got, want)
		}
		if to, err := os.Readlink(filepath.Join(dir, "current")); err != nil || to != "x.log.gz" {
			t.Errorf("killed after %d steps: the symbolic link leads to %q, %v", n, to, err)
		}
		for _, name := range names(t, dir) {
			if original, _ := originalName(name); original != "x.log.gz" && name != "current" {
				t.Errorf("killed after %d steps: %s is left", n, name)
			}
		}
		filesBelow(t, dir) // none is empty
	}
}

// killConf rotates with each batch.
func killConf(t *testing.T, dir string) Config {
	conf := fileConf(t, filepath.Join(dir, "x.log.gz"))
	conf.Limits.Messages = 1
	conf.File.Rotate.Size, conf.File.Symlink = 1, filepath.Join(dir, "current")
	return conf
}

// rotateAndDie takes the first n steps of a rotation, and kills itself.
func rotateAndDie(t *testing.T, dir string, n int) {
	path := filepath.Join(dir, "x.log.gz")
	w := newFiles(new(counters), zerolog.Nop())
	spec := specOf(t, path)
	spec.Rotate.Size = 1
	if err := w.Deliver(batch(t, path, spec, "before\n"), nil); err != nil {
		t.Fatal(err)
	}
	f := w.open[path].Value.(*file)
	step := func(do func() error) {
		if n == 0 {
			unix.Kill(unix.Getpid(), unix.SIGKILL)
			select {}
		}
		n--
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range rotationSteps {
		step(func() error { return s.do(w, f) })
	}
	w.drop(path)
	step(func() (err error) {
		f, err = w.file(path, spec, time.Now())
		return err
	})
	step(func() error {
		member, err := w.presses.member(batch(t, path, spec, "for\n"), spec)
		if err == nil {
			_, err = gzipwriter.AppendFile(f.out, member)
		}
		f.spec.Symlink = filepath.Join(dir, "current")
		w.relink(f)
		return err
	})
	step(func() error { return syncFolders(path, spec) })
	step(func() error { return nil })
}

// The symbolic link leads to the newest file, whatever the names are, and
// replaces nothing but a symbolic link.
func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	current := filepath.Join(dir, "current")
	conf := fileConf(t, filepath.Join(dir, "%H-%M-%S.log"))
	conf.Limits.Messages = 1
	conf.File.Symlink = current
	s := start(t, conf)
	e := s.Edge(-1, nil)
	noon := time.Date(2026, 3, 15, 12, 0, 0, 0, time.Local)
	for i := range 3 {
		m := message(fmt.Sprint(i))
		m.Received = noon.Add(time.Duration(i) * time.Second)
		put(t, e, m)
		s.delivered(i + 1)
		if to, err := os.Readlink(current); err != nil || to != fmt.Sprintf("12-00-0%d.log", i) || read(t, current) != fmt.Sprintf("%d\n", i) {
			t.Errorf("it leads to %q, %v", to, err)
		}
	}
	s.finish()

	// A file that was there is the newest, too.
	conf.Path = mustPath(t, filepath.Join(dir, "12-00-01.log"))
	s = start(t, conf)
	put(t, s.Edge(-1, nil), message("again"))
	s.finish()
	if to, _ := os.Readlink(current); to != "12-00-01.log" {
		t.Errorf("it leads to %q", to)
	}

	if err := os.Remove(current); err != nil {
		t.Fatal(err)
	}
	content(t, current, []byte("theirs"))
	s = start(t, conf)
	put(t, s.Edge(-1, nil), message("4"), message("5"))
	s.finish()
	if read(t, current) != "theirs" || s.log.count("cannot set the symbolic link") != 1 {
		t.Errorf("%q; log:\n%s", read(t, current), s.log)
	}
}

// A name that a rotation gave is not given again within its second, though the
// file is gone: by name, files stay in the order in which they were written.
func TestRotatedNameIsNotReused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	conf := fileConf(t, path)
	conf.Limits.Messages = 1
	conf.File.Rotate.Size = 4096
	s := start(t, conf)
	e := s.Edge(-1, nil)
	var given []string
	for i := range 10 {
		put(t, e, message(noise(i, 4000)))
		s.delivered(i + 1)
		for _, name := range rotatedOf(t, path) {
			if slices.Contains(given, name) {
				t.Errorf("%s is there again", name)
			}
			given = append(given, name)
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.finish()
	if len(given) != 9 {
		t.Errorf("%d rotations: %v", len(given), given)
	}
}
