//go:build !race

package buffer

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate maps n bytes, which cost nothing until they are touched (mmap(2)).
func allocate(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// mapFile maps the first n bytes of a file, shared: what is stored there is in
// the file, whatever becomes of the process.
func mapFile(f *os.File, n int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func release(mem []byte) error { return unix.Munmap(mem) }

func poison([]byte) {}
