package gzipwriter

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// zstdMagic begins every frame of zstd (RFC 8878 section 3.1.1), skipMagic,
// whatever the low half of its first byte, one to be skipped (3.1.2).
const (
	zstdMagic = "\x28\xb5\x2f\xfd"
	skipMagic = "\x50\x2a\x4d\x18"
)

// maxWindow is how far back a frame may refer, bytes: what zstd(1) accepts
// without being told to. It bounds the memory that a header can ask for.
const maxWindow = 128 << 20

// zstdFrames reads frames of zstd, and those of [ZstdWriter] with the one that
// tells of them as one member.
type zstdFrames struct {
	src     *source
	ahead   [512]byte // what peek read last
	aheadAt int64
	aheadN  int

	in      frameInput
	decoder *zstd.Decoder // made for the first frame
	text    []byte        // inflated
}

func newZstdFrames(src *source) *zstdFrames { return &zstdFrames{src: src} }

func (z *zstdFrames) format() Format { return Zstd }

// claim tells the length of a frame of another's, by its blocks, and that of its
// text where its header does. Of a stream it does not read so far ahead.
func (z *zstdFrames) claim(off int64) (Member, error) {
	b, err := z.peek(off, lbFrameLen)
	if err != nil {
		return Member{}, err
	}
	m := Member{Offset: off}
	var h header
	if h.parseSkipped(b) {
		m.Ours, m.Info = true, h.info
		m.Length, m.Text = int64(h.length), int64(h.text)
		return m, nil
	}
	m.Spoilt = spoiltFrame(b)
	f, err := z.begin(off)
	if err != nil {
		return Member{}, err
	}
	m.Text = f.text
	if z.src.file == nil {
		return m, nil
	}
	for !f.last {
		if err := z.extend(&f); err != nil {
			return Member{}, err
		}
	}
	if f.end > z.src.size {
		return Member{}, io.ErrUnexpectedEOF
	}
	m.Length = f.end - off
	return m, nil
}

// canHop is true if another frame begins after the member.
func (z *zstdFrames) canHop(m Member) (bool, error) {
	b, err := z.peek(m.end(), len(zstdMagic))
	return isFrame(b), err
}

// isFrame says whether a frame of either kind begins with b.
func isFrame(b []byte) bool {
	return len(b) >= len(zstdMagic) && (string(b[:4]) == zstdMagic ||
		b[0]&0xf0 == skipMagic[0] && string(b[1:4]) == skipMagic[1:])
}

// frame is as much of a frame as has been looked at.
type frame struct {
	end  int64 // where the next block begins, or the frame ends
	last bool  // there is no next block
	sum  int64 // length of the checksum behind the last, bytes
	text int64 // what the header says, 0 if nothing
	skip bool  // it holds no text
}

// begin reads the header of the frame at off (RFC 8878 section 3.1.1.1).
func (z *zstdFrames) begin(off int64) (frame, error) {
	b, err := z.peek(off, zstd.HeaderMaxSize)
	if err != nil {
		return frame{}, err
	}
	var h zstd.Header
	switch err := h.Decode(b); {
	case err == io.ErrUnexpectedEOF:
		return frame{}, err
	case err == zstd.ErrMagicMismatch:
		return frame{}, errNoMember
	case err != nil:
		return frame{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	f := frame{end: off + int64(h.HeaderSize)}
	if h.Skippable {
		f.end += int64(h.SkippableSize)
		f.last, f.skip = true, true
	}
	if h.HasCheckSum {
		f.sum = 4
	}
	if h.HasFCS && h.FrameContentSize < unknownSize {
		f.text = int64(h.FrameContentSize)
	}
	return f, nil
}

// extend moves a frame's end over one more block (RFC 8878 section 3.1.1.2).
func (z *zstdFrames) extend(f *frame) error {
	b, err := z.peek(f.end, 3)
	if err != nil {
		return err
	}
	if len(b) < 3 {
		return io.ErrUnexpectedEOF
	}
	block := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	size := int64(block >> 3)
	switch block >> 1 & 3 {
	case 1: // one byte, repeated
		size = 1
	case 3:
		return fmt.Errorf("%w: block of a reserved type", ErrDamaged)
	}
	f.end += 3 + size
	if f.last = block&1 != 0; f.last {
		f.end += f.sum
	}
	return nil
}

// frameInput reads the bytes of one frame: to its end, not to that of the
// source, and finds that end on the way.
type frameInput struct {
	input
	z     *zstdFrames
	frame frame
}

func (in *frameInput) Read(p []byte) (int, error) {
	if in.next == in.frame.end && !in.frame.last {
		if in.err = in.z.extend(&in.frame); in.err != nil {
			return 0, in.err
		}
	}
	in.end = in.frame.end
	n, err := in.input.Read(p)
	if err == io.EOF && in.next < in.end {
		in.err = io.ErrUnexpectedEOF
		err = in.err
	}
	return n, err
}

// peek returns n bytes at off, fewer at the end of the source, valid until the
// next call. It reads on a little, for many short blocks.
func (z *zstdFrames) peek(off int64, n int) ([]byte, error) {
	if i := off - z.aheadAt; i >= 0 && i+int64(n) <= int64(z.aheadN) {
		return z.ahead[i : i+int64(n)], nil
	}
	z.aheadN = 0
	want := z.ahead[:]
	if z.src.file == nil {
		want = want[:n] // more may not have come yet
	}
	got, err := z.src.readFull(want, off)
	if err != nil {
		return nil, err
	}
	z.aheadAt, z.aheadN = off, got
	return z.ahead[:min(n, got)], nil
}

func (z *zstdFrames) inflate(off int64, out io.Writer) (length, text int64, err error) {
	b, err := z.peek(off, lbFrameLen)
	if err != nil {
		return 0, 0, err
	}
	var h header
	if !h.parseSkipped(b) {
		return z.inflateFrame(off, out)
	}
	f, err := z.begin(off + lbFrameLen)
	if err == nil && f.sum == 0 {
		err = fmt.Errorf("%w: no checksum", ErrDamaged) // ours have one
	}
	if err != nil {
		return 0, 0, err
	}
	length, text, err = z.inflateFrame(off+lbFrameLen, out)
	return lbFrameLen + length, text, err
}

func (z *zstdFrames) inflateFrame(off int64, out io.Writer) (length, text int64, err error) {
	f, err := z.begin(off)
	if err != nil {
		return 0, 0, err
	}
	if f.skip {
		return f.end - off, 0, z.skip(&f)
	}
	if err := z.open(); err != nil {
		return 0, 0, err
	}
	z.in = frameInput{input: input{src: z.src, next: off}, z: z, frame: f}
	err = z.decoder.Reset(&z.in)
	for err == nil {
		var n int
		n, err = z.decoder.Read(z.text)
		text += int64(n)
		if n > 0 && out != nil {
			if _, err := out.Write(z.text[:n]); err != nil {
				return 0, 0, err
			}
		}
	}
	switch {
	case z.in.err != nil:
		return 0, 0, z.in.err
	case err == io.EOF:
		return z.in.frame.end - off, text, nil
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return 0, 0, fmt.Errorf("%w: asks for more than %d MiB of memory", ErrDamaged, maxWindow>>20)
	}
	return 0, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
}

// skip says whether a skippable frame ends where another begins, or the source
// ends. It has no checksum, and with a wrong length it would hide what is whole.
func (z *zstdFrames) skip(f *frame) error {
	b, err := z.peek(f.end, len(zstdMagic))
	switch {
	case err != nil:
		return err
	case f.end > z.src.size:
		return io.ErrUnexpectedEOF
	case f.end < z.src.size && !isFrame(b):
		return fmt.Errorf("%w: no frame follows", ErrDamaged)
	}
	return nil
}

// open makes the decoder, which is used for one frame after the other.
func (z *zstdFrames) open() (err error) {
	if z.decoder != nil {
		return nil
	}
	z.text = make([]byte, textBuffer)
	// A concurrency of 1 means no goroutine, so nothing has to be closed.
	z.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return err
}

// find looks for frames that hold text, and takes the one of ours before such a
// frame with it.
func (z *zstdFrames) find(off, end int64) (int64, error) {
	at, err := search(z.src, z, zstdMagic, off, end)
	if before := at - lbFrameLen; err == nil && before >= max(off, z.src.base) {
		b, err := z.peek(before, lbFrameLen)
		var h header
		if err == nil && h.parseSkipped(b) {
			at = before
		}
		return at, err
	}
	return at, err
}

// spoiltFrame says whether what begins at b was a skippable frame of ours until
// a byte of it was changed: either its name or its checksum is still right.
func spoiltFrame(b []byte) bool {
	if len(b) < lbFrameLen || !isFrame(b) || le.Uint32(b[4:]) != 2+lbLen {
		return false
	}
	payload := b[10:lbFrameLen]
	return string(b[8:10]) == "LB" ||
		crc32.Checksum(payload[:lbLen-4], castagnoli) == le.Uint32(payload[lbLen-4:])
}
