package gzipwriter

import (
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// A batch in zstd is a frame (RFC 8878), with the length and the checksum of
// its text, and before it a skippable frame that holds what the LB field of a
// member of gzip does:
//
//	offset  bytes
//	0       4      5b 2a 4d 18, a skippable frame
//	4       4      55, its length
//	8       2      'L' 'B'
//	10      53     as at offset 16 of a member; the length is that of both frames
//	63             frame
const (
	lbFrameMagic = "\x5b\x2a\x4d\x18"
	lbFrameLen   = 8 + 2 + lbLen
)

// ZstdWriter compresses batches into frames, one at a time, for any number of
// files. It keeps the memory of its longest frame. Not for concurrent use.
type ZstdWriter struct {
	encoder *zstd.Encoder
	frames  []byte
}

// NewZstdWriter makes a ZstdWriter of a compression level from 1 (fastest) to
// 9; from 7 on they are the same.
func NewZstdWriter(level int) (*ZstdWriter, error) {
	if level < 1 || level > 9 {
		return nil, fmt.Errorf("gzipwriter: level %d is not from 1 to 9", level)
	}
	// A concurrency of 1 means no goroutine, so nothing has to be closed. The
	// window bounds what a reader needs, and what is kept here.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithEncoderCRC(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("gzipwriter: %w", err)
	}
	return &ZstdWriter{encoder: encoder}, nil
}

// Member returns text as one frame, with the skippable one before it. It keeps
// nothing of text; the frames are the ZstdWriter's, valid until the next call.
// The error is [ErrEmpty] or [ErrTooLong]; the ZstdWriter can be used again
// after each.
func (w *ZstdWriter) Member(text []byte, info Info) ([]byte, error) {
	if len(text) == 0 {
		return nil, ErrEmpty
	}
	if len(text) > MaxText {
		return nil, ErrTooLong
	}
	w.frames = append(w.frames[:0], make([]byte, lbFrameLen)...)
	w.frames = w.encoder.EncodeAll(text, w.frames)
	h := header{length: uint32(len(w.frames)), text: uint32(len(text)), info: info}
	h.putSkipped(w.frames[:lbFrameLen])
	return w.frames, nil
}

// putSkipped writes the skippable frame into b, which has lbFrameLen bytes.
func (m *header) putSkipped(b []byte) {
	var h [headerLen]byte
	m.put(h[:], 0)
	copy(b, lbFrameMagic)
	le.PutUint32(b[4:], 2+lbLen)
	copy(b[8:], "LB")
	copy(b[10:], h[lbPayload:lbPayload+lbLen])
}

// parseSkipped reads the skippable frame at the beginning of b, which it does
// not keep. It reports false for whatever is not ours, or damaged.
func (m *header) parseSkipped(b []byte) bool {
	if len(b) < lbFrameLen || string(b[:4]) != lbFrameMagic || le.Uint32(b[4:]) != 2+lbLen ||
		string(b[8:10]) != "LB" || b[10] != lbVersion {
		return false
	}
	payload := b[10:lbFrameLen]
	if crc32.Checksum(payload[:lbLen-4], castagnoli) != le.Uint32(payload[lbLen-4:]) {
		return false
	}
	m.set(payload)
	return m.length > lbFrameLen
}

// set takes the numbers of an LB field whose checksum is right.
func (m *header) set(payload []byte) {
	m.length, m.text = le.Uint32(payload[1:]), le.Uint32(payload[5:])
	m.info = Info{
		Messages: le.Uint32(payload[9:]),
		First:    int64(le.Uint64(payload[13:])),
		Last:     int64(le.Uint64(payload[21:])),
		Arena:    le.Uint64(payload[29:]),
		Sequence: le.Uint64(payload[37:]),
		Dropped:  le.Uint32(payload[45:]),
	}
}
