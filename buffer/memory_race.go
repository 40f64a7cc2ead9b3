//go:build race

package buffer

import (
	"io"
	"os"
	"unsafe"
)

// The race detector sees only memory of Go's heap.
func allocate(n int) ([]byte, error) {
	words := make([]uint64, (n+7)/8) // aligned for the table
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n), nil
}

// mapFile reads the file. What is stored in it later stays in memory.
func mapFile(f *os.File, n int) ([]byte, error) {
	mem, err := allocate(n)
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(io.NewSectionReader(f, 0, int64(n)), mem)
	return mem, err
}

func release([]byte) error { return nil }

// poison makes the use of a piece after its release visible.
func poison(piece []byte) {
	for i := range piece {
		piece[i] = 0xDB
	}
}
