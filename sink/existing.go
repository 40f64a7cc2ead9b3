package sink

import (
	"hash/maphash"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What variables made of names before this process began is there to be seen:
// a host that has files, or a folder, is not new. It is looked for when a sink
// is made or changed, so that no message waits for a disk.

// existing finds the names that the paths of a family hold already, by their
// hash; at most maxKnown.
func (f *family) existing(seed maphash.Seed) map[uint64]struct{} {
	found := make(map[uint64]struct{})
	if fd, err := openPrefix(f.folder, 0); err == nil {
		f.look(fd, nil, seed, found)
		unix.Close(fd)
	}
	return found
}

// look adds the names below a folder, whose own components are given.
func (f *family) look(fd int, line []string, seed maphash.Seed, found map[uint64]struct{}) {
	again, err := openFolderAt(fd, ".") // whose offset is its own
	if err != nil {
		return
	}
	folder := os.NewFile(uintptr(again), ".")
	defer folder.Close()
	names, _ := folder.Readdirnames(-1) // what cannot be read counts as new
	depth := len(line)
	for _, name := range names {
		timeless, ok := f.timeless(depth, name)
		if !ok || len(found) >= maxKnown {
			continue
		}
		next := append(line[:depth:depth], timeless)
		if depth == f.named {
			found[hashOf(seed, next)] = struct{}{}
		} else if below, err := openFolderAt(fd, name); err == nil {
			f.look(below, next, seed, found)
			unix.Close(below)
		}
	}
}

// nameOf is the hash of what existing looks for in a rendered path.
func (f *family) nameOf(seed maphash.Seed, path string) uint64 {
	line := f.line(path)
	return hashOf(seed, line[:min(f.named+1, len(line))])
}

func hashOf(seed maphash.Seed, line []string) uint64 {
	return maphash.String(seed, strings.Join(line, "/"))
}
