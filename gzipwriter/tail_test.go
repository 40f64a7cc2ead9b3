package gzipwriter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLastLines(t *testing.T) {
	list := batches(t, 12, 1500)
	ours, text := join(list)
	zours, _ := join(zbatches(t, 12, 1500))
	open := bytes.TrimSuffix(text, []byte("\n"))
	var split []byte // members that end within lines
	for rest := text; len(rest) > 0; {
		n := min(777, len(rest))
		split = append(split, foreign(t, "", rest[:n])...)
		rest = rest[n:]
	}
	for name, c := range map[string]struct{ file, text []byte }{
		"ours":   {ours, text},
		"theirs": {foreign(t, "", text), text},
		"both":   {append(foreign(t, "", open), ours...), append(bytes.Clone(open), text...)},
		"split":  {split, text},
		"zstd":   {append(zframe(t, text), zframe(t, open)...), append(bytes.Clone(text), open...)},
		"zours":  {zours, text},
		"plain":  {text, text},
		"open":   {open, open},
		"empty":  {nil, nil},
		"feeds":  {foreign(t, "", []byte("\n\n\n")), []byte("\n\n\n")},
	} {
		total := int64(bytes.Count(c.text, []byte("\n")))
		for _, n := range []int64{0, 1, 2, 9, 10, total - 1, total, total + 1, total + 2, math.MaxUint32} {
			for _, step := range []int64{1, 300, tailStep} {
				if got := lastLinesOf(t, c.file, n, step); n >= 0 && got != lastLines(c.text, n) {
					t.Errorf("%s: the last %d lines by steps of %d: %d bytes, want %d", name, n, step, len(got), len(lastLines(c.text, n)))
				}
			}
		}
	}
}

// What is far from the end is not read.
func TestLastLinesReadsLittle(t *testing.T) {
	list := batches(t, 200, 30_000)
	file, text := join(list)
	c := &countingReader{r: bytes.NewReader(file), fail: math.MaxInt64}
	var out bytes.Buffer
	if err := NewReader(c, int64(len(file))).Tail(&out, 100, func(d *Damage) { t.Error(d) }); err != nil {
		t.Fatal(err)
	}
	if out.String() != lastLines(text, 100) {
		t.Errorf("%d bytes", out.Len())
	}
	if c.read > 10*tailStep {
		t.Errorf("%d bytes read of %d", c.read, len(file))
	}
}

// A torn tail does not make it read the rest; a damage among the last lines is
// told, and what looks like a member within another's text is not taken for
// one.
func TestLastLinesDamaged(t *testing.T) {
	list := batches(t, 40, 30_000)
	file, text := join(list[:39])
	whole := int64(len(file))
	torn := append(bytes.Clone(file), list[39].member[:1000]...)
	c := &countingReader{r: bytes.NewReader(torn), fail: math.MaxInt64}
	var out bytes.Buffer
	var told []Damage
	if err := NewReader(c, int64(len(torn))).Tail(&out, 5, func(d *Damage) { told = append(told, *d) }); err != nil {
		t.Fatal(err)
	}
	if out.String() != lastLines(text, 5) || len(told) != 1 || told[0].Offset != whole || c.read > 10*tailStep {
		t.Errorf("torn: %d bytes, %v, %d read", out.Len(), told, c.read)
	}

	file[whole-100] ^= 1
	if got := lastLinesOf(t, file, 5, tailStep); got != lastLines(text[:len(text)-len(list[38].text)], 5) {
		t.Errorf("damaged: %d bytes", len(got))
	}

	inner, _ := join(list[:1])
	outer := append(foreign(t, "", []byte("first\n")), stored(append(bytes.Clone(inner), "last\n"...))...)
	if got := lastLinesOf(t, outer, 1, int64(len(inner)+30)); !strings.HasSuffix(got, "last\n") || strings.HasPrefix(got, "last") {
		t.Errorf("a member within a member: %d bytes", len(got))
	}
}

// stored is a member whose text is in it as it is (RFC 1951 section 3.2.4).
func stored(text []byte) []byte {
	b := []byte(magic + "\x00\x00\x00\x00\x00\x00\xff\x01")
	b = le.AppendUint16(b, uint16(len(text)))
	b = le.AppendUint16(b, ^uint16(len(text)))
	b = append(b, text...)
	b = le.AppendUint32(b, crc32.ChecksumIEEE(text))
	return le.AppendUint32(b, uint32(len(text)))
}

// following is a Follow that runs, what it gave out, and what it noted.
type following struct {
	t    *testing.T
	name string
	mu   sync.Mutex // guards out and notes
	out  bytes.Buffer
	errs []error
}

func (f *following) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out.Write(p)
}

func (f *following) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// follow follows a file of data, nil: none yet, until the test ends.
func follow(t *testing.T, data []byte, n int64) *following {
	t.Helper()
	f := &following{t: t, name: filepath.Join(t.TempDir(), "x.log.gz")}
	if data != nil {
		f.append(data)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Follow(ctx, f.name, n, f, f.note) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// append writes to the end of the file as a sink does.
func (f *following) append(data []byte) {
	f.t.Helper()
	file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = file.Write(data)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// until waits for what is given out in all, and for what was noted; nil is
// any.
func (f *following) until(text string, notes ...error) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		got, errs := f.out.String(), errors.Join(f.errs...)
		ok := got == text && len(f.errs) == len(notes)
		for i := 0; ok && i < len(notes); i++ {
			ok = notes[i] == nil || errors.Is(f.errs[i], notes[i])
		}
		f.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d bytes given out, want %d; notes %v, want %v\n%.300q\n%.300q", len(got), len(text), errs, notes, got, text)
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A member is given out once it is whole, whatever is there of it before.
func TestFollowAppended(t *testing.T) {
	list := batches(t, 6, 3000)
	f := follow(t, list[0].member, 3)
	text := lastLines(list[0].text, 3)
	f.until(text)
	for _, b := range list[1:] {
		for _, at := range []int{2, headerLen, len(b.member) / 2} {
			f.append(b.member[:at])
			f.until(text)
			do(t, os.Truncate(f.name, size(t, f.name)-int64(at)))
		}
		f.append(b.member)
		text += string(b.text)
		f.until(text)
	}
	theirs := foreign(t, "", []byte("a\nb"))
	f.append(theirs[:15])
	f.until(text)
	f.append(theirs[15:])
	f.until(text + "a\nb")
}

func size(t *testing.T, name string) int64 {
	t.Helper()
	stat, err := os.Stat(name)
	do(t, err)
	return stat.Size()
}

func TestFollowFormats(t *testing.T) {
	f := follow(t, []byte("a\nb\nc\n"), 1)
	f.until("c\n")
	f.append([]byte("hal"))
	f.until("c\nhal")
	f.append([]byte("f\n"))
	f.until("c\nhalf\n")

	z := follow(t, zframe(t, []byte("a\nb\n")), 1)
	z.until("b\n")
	next := zframe(t, []byte("c\n"))
	z.append(next[:7])
	z.until("b\n")
	z.append(next[7:])
	z.until("b\nc\n")
}

// FI01, GZ04: rename and a new file, as by logrotate and a reopen; what the
// writer appends to the old file until then comes first.
func TestFollowRename(t *testing.T) {
	list := batches(t, 8, 2000)
	f := follow(t, list[0].member, 1000)
	text := string(list[0].text)
	f.until(text)
	old, err := os.OpenFile(f.name, os.O_WRONLY|os.O_APPEND, 0)
	do(t, err)
	defer old.Close()
	do(t, os.Rename(f.name, f.name+".1"))
	_, err = old.Write(list[1].member)
	do(t, err)
	text += string(list[1].text)
	f.until(text, fs.ErrNotExist)
	f.append(list[2].member)
	text += string(list[2].text)
	f.until(text, fs.ErrNotExist, ErrReplaced)

	// At once: the old file's last member and the new file are seen together.
	do(t, os.WriteFile(f.name+".new", list[4].member, 0o600))
	f.append(list[3].member)
	do(t, os.Rename(f.name+".new", f.name))
	text += string(list[3].text) + string(list[4].text)
	f.until(text, fs.ErrNotExist, ErrReplaced, ErrReplaced)
}

func TestFollowRemove(t *testing.T) {
	list := batches(t, 2, 2000)
	f := follow(t, list[0].member, 1000)
	f.until(string(list[0].text))
	do(t, os.Remove(f.name))
	f.until(string(list[0].text), fs.ErrNotExist)
	f.append(list[1].member)
	f.until(string(list[0].text)+string(list[1].text), fs.ErrNotExist, ErrReplaced)
}

// copytruncate, and a file that has grown past where it was before anybody
// looked.
func TestFollowTruncate(t *testing.T) {
	list := batches(t, 5, 2000)
	f := follow(t, list[0].member, 1000)
	text := string(list[0].text)
	f.until(text)
	do(t, os.Truncate(f.name, 0))
	f.until(text, ErrTruncated)
	f.append(list[1].member)
	text += string(list[1].text)
	f.until(text, ErrTruncated)
	rest, restText := join(list[2:])
	file, err := os.OpenFile(f.name, os.O_WRONLY, 0)
	do(t, err)
	defer file.Close()
	_, err = file.WriteAt(rest, 0) // one step, so that no look can come between
	do(t, err)
	f.until(text+string(restText), ErrTruncated, ErrTruncated)
}

func TestFollowLate(t *testing.T) {
	list := batches(t, 1, 2000)
	f := follow(t, nil, 1)
	f.until("", fs.ErrNotExist)
	f.append(nil)
	f.append(list[0].member)
	f.until(string(list[0].text), fs.ErrNotExist)
}

// What is damaged is told once something whole comes after it, or the file is
// left.
func TestFollowDamaged(t *testing.T) {
	list := batches(t, 4, 2000)
	f := follow(t, list[0].member, 1000)
	text := string(list[0].text)
	f.until(text)
	f.append(list[1].member[:300])
	f.append(list[2].member)
	text += string(list[2].text)
	f.until(text, ErrDamaged)
	f.append([]byte("garbage"))
	do(t, os.WriteFile(f.name+".new", list[3].member, 0o600))
	do(t, os.Rename(f.name+".new", f.name))
	text += string(list[3].text)
	f.until(text, ErrDamaged, ErrDamaged, ErrReplaced)
}

// A FIFO in the place of the file blocks nothing, and a folder that is not
// there is an error.
func TestFollowRefuses(t *testing.T) {
	f := follow(t, []byte("a\n"), 1)
	f.until("a\n")
	do(t, os.Remove(f.name))
	do(t, unix.Mkfifo(f.name, 0o600))
	f.until("a\n", nil) // that it is missing, or no regular file
	do(t, os.WriteFile(f.name+".new", []byte("b\n"), 0o600))
	do(t, os.Rename(f.name+".new", f.name))
	f.until("a\nb\n", nil, ErrReplaced)
	err := Follow(context.Background(), filepath.Join(t.TempDir(), "none", "x"), 1, f, f.note)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestFollowOutFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	do(t, os.WriteFile(name, []byte("a\n"), 0o600))
	err := Follow(context.Background(), name, 1, &failingWriter{err: unix.EPIPE}, func(err error) { t.Error(err) })
	if err != unix.EPIPE {
		t.Error(err)
	}
}

// inotifyEvent is one as the kernel makes it.
func inotifyEvent(wd int32, name string) []byte {
	b := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(b, uint32(wd))
	if name != "" {
		binary.NativeEndian.PutUint32(b[12:], 16)
		b = append(b, name+strings.Repeat("\x00", 16-len(name))...)
	}
	return b
}

// Events of other names in the folder wake nobody.
func TestWatchConcerns(t *testing.T) {
	w := watch{base: "x", folder: 1}
	for _, c := range []struct {
		events []byte
		want   bool
	}{
		{inotifyEvent(1, "x"), true}, {inotifyEvent(1, "y"), false}, {inotifyEvent(2, ""), true}, {inotifyEvent(-1, ""), true},
		{append(inotifyEvent(1, "xx"), inotifyEvent(1, "x")...), true}, {append(inotifyEvent(1, "xx"), inotifyEvent(1, "y")...), false},
	} {
		if got := w.concerns(c.events); got != c.want {
			t.Errorf("%q: %v", c.events, got)
		}
	}
}
