package buffer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse says that the process that made an arena is alive, or that another
// one delivers what is in it, or just did.
var ErrInUse = errors.New("in use")

// ErrEmpty says that a file held nothing but zeros: its process was killed
// while it made it. It has been removed.
var ErrEmpty = errors.New("empty")

// Left is an arena that a process left behind. Nothing is added to it; what it
// holds is delivered from where it lies, and when that is done it is removed.
// So a kill in the middle of it changes nothing.
type Left struct {
	Path    string
	Damaged int // pieces that are not trusted

	region
	file  *os.File
	holds atomic.Int32 // of its opener, and one for each piece that is not done
}

// Found is a batch of an arena that was left behind.
type Found struct {
	*Batch
	Sink        string // that it was for
	Fingerprint uint64 // of the Spec that it had
	age
}

// age orders what was opened: a process has one generation, whatever the number
// of its arenas, and counts births.
type age struct{ generation, birth uint64 }

func (a age) compare(b age) int {
	return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.birth, b.birth))
}

// Compare orders batches, of all arenas, by when they were opened.
func (f Found) Compare(g Found) int { return f.age.compare(g.age) }

// LeftIn returns the paths of the arenas in a folder, which may be missing. It
// removes those that a process was killed over while it saved them.
func LeftIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var paths []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case !strings.HasPrefix(e.Name(), filePrefix):
		case strings.HasSuffix(path, unfinished):
			err = errors.Join(err, removeUnfinished(path))
		default:
			paths = append(paths, path)
		}
	}
	return paths, err
}

// removeUnfinished removes what nobody is saving: the original is still there.
func removeUnfinished(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || isRemoved(f) {
		return nil
	}
	if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
		return nil // it is finished, and has its name
	}
	return err
}

// OpenLeft opens an arena that was left behind, locks and maps it. Its holder
// calls Release. [ErrInUse] says that it is not left behind, [ErrEmpty] that it
// never held anything.
func OpenLeft(path string) (*Left, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, err
	}
	l := &Left{Path: path, file: f}
	if err := l.open(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.holds.Store(1)
	return l, nil
}

func (l *Left) open() error {
	if err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if err == unix.EWOULDBLOCK {
			return ErrInUse
		}
		return os.NewSyscallError("flock", err)
	}
	if isRemoved(l.file) {
		return ErrInUse
	}
	stat, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !stat.Mode().IsRegular() {
		return errors.New("no regular file")
	}
	empty, err := isZeros(l.file)
	if empty && err == nil {
		err = cmp.Or(os.Remove(l.Path), ErrEmpty)
	}
	if err != nil {
		return err
	}
	if stat.Size() < tableOffset {
		return errors.New("no arena")
	}
	page, err := allocate(tableOffset)
	if err != nil {
		return err
	}
	defer release(page)
	if _, err := l.file.ReadAt(page, 0); err != nil {
		return err
	}
	header := (&region{all: page}).header()
	if err := header.validate(stat.Size()); err != nil {
		return err
	}
	all, err := mapFile(l.file, regionSize(int(header.pages)))
	if err != nil {
		return err
	}
	l.region = layOut(all, int(header.pages))
	return nil
}

func isZeros(f *os.File) (bool, error) {
	part := make([]byte, 1<<20)
	zeros := make([]byte, len(part))
	for at := int64(0); ; {
		n, err := f.ReadAt(part, at)
		at += int64(n)
		if !bytes.Equal(part[:n], zeros[:n]) {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// Generation orders arenas by age.
func (l *Left) Generation() uint64 { return l.header().generation }

// ID names the arena.
func (l *Left) ID() uint64 { return l.header().id }

// Owner is what was set with SetOwner.
func (l *Left) Owner() []byte { return l.owner() }

// Find returns what the arena holds, the oldest first: batches, each of which
// is to be adopted or ended with Discard, and windows, to be closed. It is
// called once. What cannot be trusted is counted in Damaged and left alone.
func (l *Left) Find() (batches []Found, windows []*Window) {
	old := l.superseded()
	for page := 0; page < len(l.table); {
		e := &l.table[page]
		if atomic.LoadUint32(&e.state) == stateFree {
			page++
			continue
		}
		if !l.isWhole(page) {
			l.Damaged++
			page++
			continue
		}
		next := page + e.pages()
		switch {
		case old[page]:
			e.free()
		case e.kind == windowPiece:
			windows = append(windows, l.foundWindow(page))
		default:
			if f, ok := l.foundBatch(page); ok {
				batches = append(batches, f)
			}
		}
		page = next
	}
	slices.SortFunc(batches, Found.Compare)
	return batches, windows
}

// superseded are the pages of pieces of which there is a larger copy.
func (l *Left) superseded() map[int]bool {
	old := make(map[int]bool)
	for page := range l.table {
		e := &l.table[page]
		if e.state != stateFree && e.supersedes != 0 && l.isWhole(page) {
			old[int(e.supersedes)-1] = true
		}
	}
	return old
}

// isWhole reports whether what an entry says can be so.
func (l *Left) isWhole(page int) bool {
	e := &l.table[page]
	pages := 1 << min(e.order, 62)
	if e.state > stateWriting || e.order > 40 || page%pages != 0 || page+pages > len(l.table) {
		return false
	}
	switch {
	case e.kind == batchPiece:
	case e.kind == windowPiece && e.fingerprint >= minWindow && e.fingerprint <= uint64(pages):
	default:
		return false
	}
	piece := l.pieceOf(page, e.pages())
	names := int(e.sinkLen) + int(e.keyLen)
	if names > len(piece) || e.sum != e.check(piece) {
		return false
	}
	bytes, messages := e.content()
	room := len(piece)
	if names > len(e.names) {
		room -= names
	}
	return bytes <= room && messages <= bytes && int64(e.supersedes) <= int64(len(l.table))
}

func (r *region) age(page int) age { return age{r.header().generation, r.table[page].birth} }

func (l *Left) namesOf(page int) (sink, key string) {
	e := &l.table[page]
	names := e.namesIn(l.pieceOf(page, e.pages()))
	return string(names[:e.sinkLen]), string(names[e.sinkLen:])
}

func (l *Left) foundWindow(page int) *Window {
	w := l.window(page, l.table[page].pages())
	w.Source, w.Label = l.namesOf(page)
	w.left = l
	l.holds.Add(1)
	return w
}

// foundBatch returns false for one in which nothing was published yet.
func (l *Left) foundBatch(page int) (Found, bool) {
	e := &l.table[page]
	bytes, messages := e.content()
	if bytes == 0 {
		e.free()
		return Found{}, false
	}
	sink, key := l.namesOf(page)
	piece := l.piece(page, e.order)
	bt := &Batch{
		Key: key, Messages: messages, Dropped: int(e.dropped),
		First: time.Unix(0, e.first),
		Arena: e.arena, Sequence: e.sequence, Cause: ByShutdown,
		data: piece[:bytes], entry: e, left: l,
	}
	if e.state == stateWriting {
		place := e.place
		bt.Intent = &place
	}
	l.holds.Add(1)
	return Found{Batch: bt, Sink: sink, Fingerprint: e.fingerprint, age: l.age(page)}, true
}

// Resolve finds out, for the windows of all arenas that were left behind,
// whether the appends that were under way were published. It comes before
// anything of them is delivered. It returns those windows that no other has
// taken the place of, the oldest first.
func Resolve(all []*Left, windows []*Window) (valid []*Window) {
	replaced := make(map[replacedWindow]bool)
	for _, w := range windows {
		for _, r := range w.entry.replaced() {
			replaced[r] = true
		}
	}
	for _, w := range windows {
		if replaced[replacedWindow{w.region.header().id, uint64(w.region.pageOf(w.piece)) + 1}] {
			w.Close() // cannot be the end of the arena, which is held by its opener
			continue
		}
		valid = append(valid, w)
	}
	slices.SortStableFunc(valid, func(a, b *Window) int { return a.age().compare(b.age()) })
	for _, w := range valid {
		w.entry.setReplaced([2]replacedWindow{})
		for i := range w.notes {
			n := &w.notes[i]
			if n.at == n.next {
				continue
			}
			if !wasPublished(all, n) {
				n.next = n.at
			}
			n.at = n.next
			Step("resolve")
		}
	}
	return valid
}

func (w *Window) age() age { return w.region.age(int(w.region.pageOf(w.piece))) }

func wasPublished(all []*Left, n *noteRecord) bool {
	for _, l := range all {
		if l.ID() == n.arena && int64(n.page) < int64(len(l.table)) {
			return atomic.LoadUint64(&l.table[n.page].published) != n.before
		}
	}
	return false
}

// Close gives the arena up as it is, for another process to find. Nothing of it
// may be in use.
func (l *Left) Close() error { return errors.Join(l.file.Close(), release(l.all)) }

// MoveTo saves what is not done in another folder, unless it lies there
// already, and removes the file. Nothing else may be in use.
func (l *Left) MoveTo(dir string) error {
	if l.holds.Load() == 0 || filepath.Dir(l.Path) == filepath.Clean(dir) {
		return nil
	}
	if _, err := l.save(dir); err != nil {
		return err
	}
	return os.Remove(l.Path)
}

// Release gives up a hold: of the opener, or of a piece that is done. The last
// removes the file.
func (l *Left) Release() error {
	if l.holds.Add(-1) > 0 {
		return nil
	}
	if l.Damaged > 0 {
		return l.Close()
	}
	Step("remove")
	return errors.Join(os.Remove(l.Path), l.Close())
}

// Shrink gives back the space of all but the given pieces. What is not
// trusted is gone then.
func (l *Left) Shrink(batches []Found, windows []*Window) {
	wanted := make([]bool, len(l.table))
	for _, f := range batches {
		mark(wanted, int(l.pageOf(f.data)), 1<<f.entry.order)
	}
	for _, w := range windows {
		mark(wanted, int(l.pageOf(w.piece)), w.entry.pages())
	}
	l.Damaged = 0
	for i, want := range wanted {
		if !want {
			l.table[i].state = stateFree
		}
	}
	Step("shrink")
	data := int64(tableOffset + tableSize(len(l.table)))
	for from := 0; from < len(wanted); {
		to := from
		for to < len(wanted) && !wanted[to] {
			to++
		}
		if to > from { // fails where there are no holes: then the file is as large as it was
			unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE,
				data+int64(from)*PageSize, int64(to-from)*PageSize)
		}
		from = max(to, from+1)
	}
}

func mark(pages []bool, from, n int) {
	for i := range n {
		pages[from+i] = true
	}
}

// Discard ends a batch that nobody adopts: it is not wanted.
func (f *Found) Discard() {
	f.entry.free()
	f.left.Release()
}

// Adopt takes on a batch that a process before this one left behind, as
// sealed. It counts as accepted, and against the share, as it did there.
func (b *Buffer) Adopt(f Found, spec any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bt := f.Batch
	bt.Spec = spec
	if bt.Sequence == 0 {
		b.sequence++
		bt.Arena, bt.Sequence = b.arena, b.sequence
		bt.entry.seal(bt.Arena, bt.Sequence, bt.Dropped)
	}
	Step("adopt")
	b.share.charge(cap(bt.piece()))
	b.stats.Accepted += uint64(bt.Messages)
	b.stats.Buffered += uint64(bt.Messages)
	b.stats.Batches[bt.Cause]++
	b.live.add(bt)
	b.enqueue(bt)
}

// done is what follows the end of a batch of the arena.
func (l *Left) done(s *Share, bt *Batch) {
	s.charge(-cap(bt.piece()))
	l.Release() // what fails is found again at the next start, empty
}

// charge counts n bytes that lie elsewhere as used.
func (s *Share) charge(n int) {
	a := s.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	before := s.borrowedLocked()
	s.used += n
	a.common -= s.borrowedLocked() - before
	if n < 0 {
		a.announceRoomLocked()
	}
}
