package buffer

import (
	"fmt"
	"hash/crc32"
	"unsafe"
)

// region is the memory of an arena as it lies in its file: a header page, the
// table, and the pages.
type region struct {
	all   []byte
	table []descriptor // one for each page
	mem   []byte       // the pages
}

// regionHeader is the beginning of the header page. What belongs to the owner,
// see SetOwner, follows it.
type regionHeader struct {
	magic      [8]byte
	version    uint32
	pageSize   uint32
	entrySize  uint32
	pages      uint32
	id         uint64
	generation uint64 // greater than that of all that were there when it was made
	owner      uint32 // bytes
	ownerSum   uint32
	_          uint32
	sum        uint32 // CRC-32C of all before owner
}

const (
	regionMagic   = "logboom\x00"
	regionVersion = 1

	// maxPages bounds what a header can make us believe: a terabyte.
	maxPages = 1 << 28
)

// regionSize is the size of a region with so many pages, in bytes.
func regionSize(pages int) int { return tableOffset + tableSize(pages) + pages*PageSize }

const tableOffset = PageSize

// tableSize is the size of the table, in whole pages.
func tableSize(pages int) int {
	return (pages*entrySize + PageSize - 1) / PageSize * PageSize
}

// layOut finds the parts of a region in memory of its size.
func layOut(all []byte, pages int) region {
	first := (*descriptor)(unsafe.Pointer(&all[tableOffset]))
	return region{
		all:   all,
		table: unsafe.Slice(first, pages),
		mem:   all[tableOffset+tableSize(pages):],
	}
}

func (r *region) header() *regionHeader { return (*regionHeader)(unsafe.Pointer(&r.all[0])) }

// describe writes the header of a new region.
func (r *region) describe(id, generation uint64) {
	*r.header() = regionHeader{
		magic: [8]byte([]byte(regionMagic)), version: regionVersion, pageSize: PageSize,
		entrySize: entrySize, pages: uint32(len(r.table)), id: id, generation: generation,
	}
	r.header().sum = r.header().check()
}

func (h *regionHeader) check() uint32 {
	bytes := (*[unsafe.Sizeof(regionHeader{})]byte)(unsafe.Pointer(h))
	return crc32.Checksum(bytes[:unsafe.Offsetof(h.owner)], castagnoli)
}

// validate reports what is wrong with a header in a file of size bytes.
func (h *regionHeader) validate(size int64) error {
	switch {
	case string(h.magic[:]) != regionMagic:
		return fmt.Errorf("no arena")
	case h.version != regionVersion:
		return fmt.Errorf("an arena of version %d", h.version)
	case h.sum != h.check():
		return fmt.Errorf("a damaged header")
	case h.pageSize != PageSize || h.entrySize != entrySize || h.pages == 0 || h.pages > maxPages:
		return fmt.Errorf("an arena of %d pages of %d bytes", h.pages, h.pageSize)
	case size < int64(regionSize(int(h.pages))):
		return fmt.Errorf("cut short: %d bytes of %d", size, regionSize(int(h.pages)))
	}
	return nil
}

// maxOwner is the room for what belongs to the owner, in bytes.
const maxOwner = tableOffset - int(unsafe.Sizeof(regionHeader{}))

// setOwner keeps a text of the owner's in the header page. False: no room.
func (r *region) setOwner(text []byte) bool {
	if len(text) > maxOwner {
		return false
	}
	copy(r.all[unsafe.Sizeof(regionHeader{}):], text)
	h := r.header()
	h.owner, h.ownerSum = uint32(len(text)), crc32.Checksum(text, castagnoli)
	return true
}

// owner is the text that was set; nil if there is none, or it is damaged.
func (r *region) owner() []byte {
	h := r.header()
	if h.owner == 0 || int(h.owner) > maxOwner {
		return nil
	}
	text := r.all[unsafe.Sizeof(regionHeader{}):][:h.owner]
	if crc32.Checksum(text, castagnoli) != h.ownerSum {
		return nil
	}
	return text
}

// piece is the memory of the piece that begins at a page.
func (r *region) piece(page int, order uint8) []byte { return r.pieceOf(page, 1<<order) }

func (r *region) pieceOf(page, pages int) []byte {
	return r.mem[page*PageSize:][: pages*PageSize : pages*PageSize]
}

// pageOf tells which page a piece begins at.
func (r *region) pageOf(piece []byte) int32 {
	piece = piece[:1]
	return int32((uintptr(unsafe.Pointer(&piece[0])) - uintptr(unsafe.Pointer(&r.mem[0]))) / PageSize)
}

// entryOf is the entry of a piece.
func (r *region) entryOf(piece []byte) *descriptor { return &r.table[r.pageOf(piece)] }
