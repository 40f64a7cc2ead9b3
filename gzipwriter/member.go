// Package gzipwriter makes gzip members out of batches of text, appends each
// with one write(2), and reads, checks and repairs the files that they make.
//
// A file is a row of RFC 1952 members, one a batch. Each of ours says in an
// extra field named LB how long it is and what it holds, so that a reader that
// knows LB hops from member to member without inflating; all others skip it.
//
//	offset  bytes
//	0       10     1f 8b 08, FLG = FEXTRA, MTIME 0, XFL by level, OS unknown
//	10      2      XLEN = 57
//	12      4      'L' 'B', LEN = 53
//	16      1      version, 1
//	17      4      length of the member, bytes
//	21      4      length of its text, bytes
//	25      4      messages
//	29      8      receive time of its first message, Unix ns
//	37      8      receive time of its last message, Unix ns
//	45      8      arena
//	53      8      sequence
//	61      4      messages dropped since the member before
//	65      4      CRC-32C of bytes 16 to 64
//	69             deflate stream, CRC-32 of the text, length of the text
//
// Numbers are little-endian.
package gzipwriter

import (
	"encoding/binary"
	"hash/crc32"
)

// Info is what a member's header tells about its batch.
type Info struct {
	Messages uint32
	First    int64  // receive time of the first message, Unix ns
	Last     int64  // receive time of the last message, Unix ns
	Arena    uint64 // the arena that held the batch
	Sequence uint64 // the batch's number in that arena
	Dropped  uint32 // messages dropped for this file since the member before
}

const (
	fixedLen   = 10 // RFC 1952 section 2.3: ID1 to OS
	headerLen  = 69 // of a member that [Writer] makes: all before the deflate stream
	trailerLen = 8  // CRC-32 and ISIZE

	lbOffset  = 12 // SI1 of the first subfield
	lbPayload = lbOffset + 4
	lbLen     = 53 // LEN of the subfield
	lbVersion = 1
	lbSum     = lbPayload + lbLen - 4 // where the subfield's own checksum is

	// minDeflate is the shortest deflate stream: a fixed block that holds
	// nothing but its end (RFC 1951 section 3.2.6).
	minDeflate = 2

	flagExtra    = 1 << 2
	flagReserved = 7 << 5
)

// magic begins every member: ID1, ID2 and the only compression method there is.
const magic = "\x1f\x8b\x08"

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// header is what the LB field says.
type header struct {
	length uint32 // of the whole member, bytes
	text   uint32 // of its text, bytes
	info   Info
}

// put writes the header of a member into h, which has headerLen bytes.
func (m *header) put(h []byte, xfl byte) {
	_ = h[headerLen-1]
	copy(h, magic)
	h[3] = flagExtra
	le.PutUint32(h[4:], 0) // MTIME: none; the LB field tells the times exactly
	h[8] = xfl
	h[9] = 255 // OS: unknown
	le.PutUint16(h[10:], 4+lbLen)
	h[12], h[13] = 'L', 'B'
	le.PutUint16(h[14:], lbLen)
	h[16] = lbVersion
	le.PutUint32(h[17:], m.length)
	le.PutUint32(h[21:], m.text)
	le.PutUint32(h[25:], m.info.Messages)
	le.PutUint64(h[29:], uint64(m.info.First))
	le.PutUint64(h[37:], uint64(m.info.Last))
	le.PutUint64(h[45:], m.info.Arena)
	le.PutUint64(h[53:], m.info.Sequence)
	le.PutUint32(h[61:], m.info.Dropped)
	le.PutUint32(h[lbSum:], crc32.Checksum(h[lbPayload:lbSum], castagnoli))
}

// parse reads the header at the beginning of h, which it does not keep. It
// reports false for whatever is not ours: another's member, an LB field of a
// version to come, one whose checksum is wrong, or fewer than headerLen bytes.
// Further subfields and flags may follow, since only LB has to come first.
func (m *header) parse(h []byte) bool {
	if len(h) < headerLen || string(h[:3]) != magic {
		return false
	}
	if h[3]&flagExtra == 0 || h[3]&flagReserved != 0 {
		return false
	}
	extra := uint32(le.Uint16(h[10:]))
	if extra < 4+lbLen || h[12] != 'L' || h[13] != 'B' ||
		le.Uint16(h[14:]) != lbLen || h[16] != lbVersion {
		return false
	}
	if crc32.Checksum(h[lbPayload:lbSum], castagnoli) != le.Uint32(h[lbSum:]) {
		return false
	}
	m.set(h[lbPayload:])
	return m.length >= fixedLen+2+extra+minDeflate+trailerLen
}

// spoilt says whether what begins at h was a header of ours until a byte of its
// LB field was changed: either its name or its checksum is still right. The
// member can be whole for all that, since others skip the field.
func spoilt(h []byte) bool {
	if len(h) < headerLen || h[3]&flagExtra == 0 {
		return false
	}
	named := h[12] == 'L' && h[13] == 'B' && le.Uint16(h[14:]) == lbLen
	right := crc32.Checksum(h[lbPayload:lbSum], castagnoli) == le.Uint32(h[lbSum:])
	return named && !right || !named && right && le.Uint16(h[10:]) == 4+lbLen
}
