package gzipwriter

import "io"

// FirstInfo returns what the header of a file's first member says, if that is
// one of ours: of gzip, or the skippable frame before one of zstd. It reads
// the first bytes alone, and takes no error for an answer.
func FirstInfo(file io.ReaderAt) (Info, bool) {
	var head [headerLen]byte
	n, err := file.ReadAt(head[:], 0)
	if err != nil && err != io.EOF {
		return Info{}, false
	}
	var h header
	if h.parse(head[:n]) || h.parseSkipped(head[:n]) {
		return h.info, true
	}
	return Info{}, false
}
