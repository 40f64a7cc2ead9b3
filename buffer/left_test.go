package buffer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killed writes what an arena holds at this moment into a new folder, as if
// the process had been killed, and returns the path.
func killed(t testing.TB, a *Arena) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filePrefix+"killed")
	if err := os.WriteFile(path, a.current.all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// found opens an arena that was left behind and returns what it holds.
func found(t testing.TB, path string) (*Left, []Found, []*Window) {
	t.Helper()
	l, err := OpenLeft(path)
	if err != nil {
		t.Fatal(err)
	}
	batches, windows := l.Find()
	windows = Resolve([]*Left{l}, windows)
	return l, batches, windows
}

// fileArena makes an arena that is a file.
func fileArena(t testing.TB, size int) *Arena {
	t.Helper()
	a, err := CreateArena(t.TempDir(), size, 7)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// What was published is found with all that is to be known of it, in the order
// in which it was opened.
func TestFind(t *testing.T) {
	a := fileArena(t, 64*PageSize)
	b := New("access", a.Share(a.Size()), Limits{100, 2 * PageSize, time.Hour})
	long := "/" + strings.Repeat("long/", 60)
	mustAdd(t, b, "/a", "one")
	mustAdd(t, b, long, "two")
	b.Begin()
	b.Drop([]byte("/a"), 3, "memory full") // seals it
	b.End()
	mustAdd(t, b, "/a", "three")
	mustAdd(t, b, "/a", strings.Repeat("x", PageSize)) // grows
	l, batches, _ := found(t, killed(t, a))
	var got []string
	for _, f := range batches {
		got = append(got, fmt.Sprintf("%s %s %d messages %d dropped %.9q %d", f.Sink, f.Key, f.Messages, f.Dropped, f.Bytes(), len(f.Bytes())))
	}
	want := []string{
		`access /a 1 messages 0 dropped "one\n" 4`,
		"access " + long + ` 1 messages 0 dropped "two\n" 4`,
		`access /a 2 messages 3 dropped "three\nxxx" 4103`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if l.Damaged != 0 || l.Generation() != 7 || l.ID() != a.current.header().id {
		t.Errorf("damaged %d, generation %d, id %x", l.Damaged, l.Generation(), l.ID())
	}
	if batches[0].Sequence != 1 || batches[0].Arena != b.arena || batches[1].Sequence != 0 {
		t.Error("only what was sealed has a sequence")
	}
}

// A batch that is adopted is counted like any other; the file of its arena
// goes with the last one.
func TestAdopt(t *testing.T) {
	a := fileArena(t, 64*PageSize)
	old := New("access", a.Share(a.Size()), Limits{100, PageSize, time.Hour})
	mustAdd(t, old, "/a", "sealed")
	old.Seal(ByAge)
	mustAdd(t, old, "/a", "open")
	path := killed(t, a)
	l, batches, _ := found(t, path)
	b := newBuffer(t, 64, Limits{100, PageSize, time.Hour})
	for _, f := range batches {
		b.Adopt(f, "spec")
	}
	l.Shrink(batches, nil)
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, used := b.share.balance(); used != 2*PageSize {
		t.Errorf("%d bytes of the share are used, want two pages", used)
	}
	if s := b.Stats(); s.Accepted != 2 || s.Buffered != 2 || s.Oldest.IsZero() {
		t.Errorf("%+v, want two accepted and buffered", s)
	}
	all := sealed(b)
	if got := texts(all); !slices.Equal(got, []string{"sealed\n", "open\n"}) || all[0].Spec != "spec" {
		t.Fatalf("%q", got)
	}
	if all[0].Arena != old.arena || all[0].Sequence != 1 || all[1].Arena != b.arena || all[1].Sequence != 1 {
		t.Error("a batch that was sealed keeps its name, one that was open gets one")
	}
	b.Done(all[0], 0, "")
	if _, err := os.Stat(path); err != nil {
		t.Error("the file is gone before all is done:", err)
	}
	b.Done(all[1], 0, "")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("all is done, but the file is there:", err)
	}
	if s := b.Stats(); s.Delivered != 2 || s.Buffered != 0 {
		t.Errorf("%+v, want two delivered", s)
	}
	if _, used := b.share.balance(); used != 0 {
		t.Errorf("%d bytes of the share are used, want none", used)
	}
}

// What one sink has left behind takes neither another's guaranteed share nor
// what is set aside, even where there is more of it than the arena holds.
func TestAdoptMoreThanThereIs(t *testing.T) {
	a := fileArena(t, 64*PageSize)
	old := New("access", a.Share(a.Size()), Limits{1, PageSize, time.Hour})
	for range 40 {
		mustAdd(t, old, "/a", "text")
	}
	_, batches, _ := found(t, killed(t, a))
	small, err := NewArena(32 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { small.Close() })
	small.SetAside(8 * PageSize)
	b := New("access", small.Share(4*PageSize), Limits{1, PageSize, time.Hour})
	other := New("other", small.Share(4*PageSize), Limits{1, PageSize, time.Hour})
	for _, f := range batches {
		b.Adopt(f, nil)
	}
	if add(b, "/a", "text") {
		t.Error("a sink that has more than its share takes more")
	}
	mustAdd(t, other, "/a", "text")
	if !small.Reserve(8*PageSize) || small.Reserve(PageSize) {
		t.Error("what is set aside can be reserved, and no more")
	}
	small.Unreserve(8 * PageSize)
	deliver(b)
	mustAdd(t, b, "/a", "text")
}

// Where a batch was about to be written is found, and nowhere else.
func TestIntent(t *testing.T) {
	a := fileArena(t, 16*PageSize)
	b := New("access", a.Share(a.Size()), Limits{1, PageSize, time.Hour})
	mustAdd(t, b, "/a", "written")
	mustAdd(t, b, "/a", "queued")
	place := Place{1, 2, 3, 4}
	sealed(b)[0].Intend(place)
	_, batches, _ := found(t, killed(t, a))
	if batches[0].Intent == nil || *batches[0].Intent != place || batches[1].Intent != nil {
		t.Errorf("%v and %v, want %v and none", batches[0].Intent, batches[1].Intent, place)
	}
}

// What could not be delivered is saved as a small arena.
func TestSave(t *testing.T) {
	empty, a := fileArena(t, PageSize), fileArena(t, 256*PageSize)
	b := New("access", a.Share(a.Size()), Limits{100, 16 * PageSize, time.Hour})
	if paths, err := empty.Save(t.TempDir()); len(paths) > 0 || err != nil {
		t.Errorf("nothing to save: %q, %v", paths, err)
	}
	mustAdd(t, b, "/a", "one")
	mustAdd(t, b, "/b", strings.Repeat("x", 3*PageSize))
	mustAdd(t, b, "/c", "three")
	dir := t.TempDir()
	paths, err := a.Save(dir)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := LeftIn(dir); err != nil || !slices.Equal(left, paths) || len(paths) != 1 {
		t.Fatalf("%v, %v, want %s", left, err, paths)
	}
	l, batches, _ := found(t, paths[0])
	if l.ID() != a.current.header().id || l.Generation() != 7 || len(l.table) != 6 {
		t.Errorf("id %x, generation %d, %d pages", l.ID(), l.Generation(), len(l.table))
	}
	if len(batches) != 3 || string(batches[0].Bytes()) != "one\n" || len(batches[1].Bytes()) != 3*PageSize+1 || batches[2].Key != "/c" {
		t.Errorf("%d batches", len(batches))
	}
}

// An arena without room on its file system is an error, and leaves nothing.
func TestCreateArenaOnFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: mounts a small tmpfs")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a tmpfs here:", err)
	}
	defer unix.Unmount(dir, 0)
	if _, err := CreateArena(dir, 4<<20, 1); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v, want that the file system is full", err)
	}
	if left, err := LeftIn(dir); err != nil || len(left) > 0 {
		t.Errorf("%v was left, %v", left, err)
	}
	a, err := CreateArena(dir, 512<<10, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !a.IsOnTmpfs() {
		t.Error("it is on a tmpfs")
	}
	if err := errors.Join(a.Remove(), a.Close()); err != nil {
		t.Error(err)
	}
}

// One process has an arena.
func TestArenaInUse(t *testing.T) {
	a := fileArena(t, 16*PageSize)
	if _, err := OpenLeft(a.current.file.Name()); !errors.Is(err, ErrInUse) {
		t.Errorf("%v, want that it is in use", err)
	}
	if err := a.Remove(); err != nil {
		t.Error(err)
	}
}

// Others that look for what was left behind, at any moment, take nothing from a
// process that makes an arena or removes it, and see nothing of it.
func TestArenaAmongOthers(t *testing.T) {
	dir, stop := t.TempDir(), make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				paths, err := LeftIn(dir)
				for _, path := range paths {
					l, failed := OpenLeft(path)
					if failed == nil {
						l.Close()
						failed = fmt.Errorf("%s was taken for one that was left behind", path)
					}
					if !errors.Is(failed, ErrInUse) && !errors.Is(failed, ErrEmpty) {
						err = errors.Join(err, failed)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 500 {
		a, err := CreateArena(dir, 16*PageSize, 1)
		if err != nil {
			t.Error(err)
			break
		}
		_, err = os.Stat(a.current.file.Name())
		if err = errors.Join(err, a.Remove(), a.Close()); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	others.Wait()
}

func TestOwner(t *testing.T) {
	a := fileArena(t, 16*PageSize)
	if !a.SetOwner([]byte("me")) || a.SetOwner(make([]byte, PageSize)) {
		t.Error("a page has room for a short text, and not for a page of it")
	}
	l, _, _ := found(t, killed(t, a))
	if string(l.Owner()) != "me" {
		t.Errorf("%q", l.Owner())
	}
}

// What is no arena is refused with a reason.
func TestOpenLeftErrors(t *testing.T) {
	a := fileArena(t, 16*PageSize)
	whole := slices.Clone(a.current.all)
	change := func(at int) []byte {
		b := slices.Clone(whole)
		b[at] ^= 0xff
		return b
	}
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"empty":   {nil, "empty"},
		"zeros":   {make([]byte, len(whole)), "empty"},
		"short":   {whole[:100], "no arena"},
		"cut":     {whole[:len(whole)-1], "cut short"},
		"magic":   {change(0), "no arena"},
		"version": {change(8), "version"},
		"pages":   {change(20), "damaged header"},
	} {
		path := filepath.Join(t.TempDir(), "arena")
		if err := os.WriteFile(path, tt.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLeft(path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := OpenLeft(t.TempDir()); err == nil {
		t.Error("a folder is no arena")
	}
}

// FuzzLeft damages an arena anywhere: what is found is within it, and what is
// not damaged is found.
func FuzzLeft(f *testing.F) {
	a, err := NewArena(64 * PageSize)
	if err != nil {
		f.Fatal(err)
	}
	b := New("access", a.Share(32*PageSize), Limits{4, 4 * PageSize, time.Hour})
	for i := range 10 {
		add(b, fmt.Sprintf("/%d", i%3), strings.Repeat("x", 100+i*500))
	}
	all := sealed(b)
	all[0].Intend(Place{1, 2, 3, 4})
	w := a.NewWindow("udp", "", 100)
	w.Begin()
	f.Add(uint32(tableOffset), []byte{1, 2, 3})
	f.Add(uint32(tableOffset+8), []byte{60})
	f.Add(uint32(tableOffset+16), []byte{255, 255, 255, 255})
	f.Add(uint32(0), []byte{0})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		path := filepath.Join(t.TempDir(), "arena")
		data := slices.Clone(a.current.all)
		copy(data[int(at)%len(data):], with)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLeft(path)
		if err != nil {
			return
		}
		batches, windows := l.Find()
		windows = Resolve([]*Left{l}, windows)
		damaged := l.Damaged
		l.Shrink(batches, windows)
		b := New("access", a.Share(0), Limits{4, 4 * PageSize, time.Hour})
		for _, f := range batches {
			if len(f.Bytes()) == 0 || f.Messages > len(f.Bytes()) {
				t.Errorf("%d messages in %d bytes", f.Messages, len(f.Bytes()))
			}
			b.Adopt(f, nil)
		}
		deliver(b)
		for _, w := range windows {
			w.Note("access").Had(0, 100)
			w.Close()
		}
		if len(batches)+len(windows)+damaged == 0 {
			t.Error("nothing is found, and nothing is damaged")
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}
