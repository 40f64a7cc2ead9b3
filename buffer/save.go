package buffer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// unfinished ends the name of a file that is being written.
const unfinished = ".new"

// save writes the batches that are not done into a small arena in dir, and
// returns its path, or "" if there are none.
func (r *region) save(dir string) (path string, err error) {
	var pages []int
	total := 0
	for page := range r.table {
		e := &r.table[page]
		if bytes, _ := e.content(); atomic.LoadUint32(&e.state) != stateFree && e.kind == batchPiece && bytes > 0 {
			pages = append(pages, page)
			total += 1 << e.order
		}
	}
	if total == 0 {
		return "", nil
	}
	// The largest first: so each begins at a multiple of its size.
	slices.SortStableFunc(pages, func(x, y int) int { return cmp.Compare(r.table[y].order, r.table[x].order) })

	path = filepath.Join(dir, fmt.Sprintf("%s%016x", filePrefix, r.header().id))
	f, err := createLocked(path+unfinished, os.O_TRUNC)
	if err != nil {
		return "", err
	}
	defer f.Close()
	err = r.copyTo(f, pages, total)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(path+unfinished))
	}
	Step("saved")
	return path, nil
}

// copyTo writes the pieces that begin at some pages as a region of their own.
func (r *region) copyTo(f *os.File, pages []int, total int) error {
	head, err := allocate(tableOffset + tableSize(total) + PageSize)
	if err != nil {
		return err
	}
	defer release(head)
	small := layOut(head, total)
	small.describe(r.header().id, r.header().generation)
	small.setOwner(r.owner())
	at := 0
	for _, page := range pages {
		e := &small.table[at]
		*e = r.table[page]
		e.supersedes = 0
		piece := r.piece(page, e.order)
		if _, err := f.WriteAt(piece, int64(tableOffset+tableSize(total)+at*PageSize)); err != nil {
			return err
		}
		Step("save")
		at += 1 << e.order
	}
	_, err = f.WriteAt(head[:tableOffset+tableSize(total)], 0)
	return err
}

// syncDir makes a new name in dir outlive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
