package sink

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"logboom/buffer"
	"logboom/gzipwriter"
)

// What a process that was killed has left is taken on by the sink of the same
// name, if it is of the same kind and the file lies where it may write.

// fileKind is the fingerprint of batches for files, with the compression above
// it; that of batches for remotes is the framing plus frameKind.
const (
	fileKind  = 1
	frameKind = 2
)

// Fingerprint is what is kept of a spec with each batch of a file sink.
func (f *File) Fingerprint() uint64 { return fileKind | uint64(f.Compress)<<8 }

// Fingerprint is what is kept of a spec with each batch of a syslog sink.
func (f Framing) Fingerprint() uint64 { return frameKind + uint64(f) }

// framingOf is the framing that a fingerprint tells of, if it is one.
func framingOf(fingerprint uint64) (Framing, bool) {
	f := fingerprint - frameKind
	return Framing(f), f == uint64(Lines) || f == uint64(Octets)
}

// Adopt takes on a batch that was left behind. It returns false for one that
// is not this sink's.
func (s *Sink) Adopt(f buffer.Found) bool {
	if f.Sink != s.name {
		return false
	}
	s.buf.Begin()
	spec, ok := s.spec.(*File)
	s.buf.End()
	if !ok {
		framing, ok := framingOf(f.Fingerprint)
		if ok {
			s.buf.Adopt(f, framing)
		}
		return ok
	}
	if spec, ok = spec.forFound(f.Fingerprint); !ok {
		return false
	}
	if toDescriptor := spec.Descriptor != nil; toDescriptor != (f.Key == "") || !toDescriptor && !isBelow(f.Key, spec.Prefix) {
		return false
	}
	s.buf.Adopt(f, spec)
	return true
}

// forFound is the spec of a batch with a fingerprint: it was meant for a file
// of that compression, whatever new ones get. Nil of what is no file's.
func (f *File) forFound(fingerprint uint64) (*File, bool) {
	format := gzipwriter.Format(fingerprint >> 8)
	if fingerprint&0xff != fileKind || fingerprint>>16 != 0 || format > gzipwriter.Zstd {
		return nil, false
	}
	if f.Compress == format {
		return f, true
	}
	spec := *f
	spec.Compress = format
	return &spec, true
}

// isBelow reports whether a path is one of a file below a folder, as it
// stands.
func isBelow(path, folder string) bool {
	below, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsAbs(path) && filepath.Clean(path) == path && bytes.IndexByte([]byte(path), 0) < 0 &&
		filepath.IsLocal(below) && below != "."
}

// AdoptAll takes on a batch of any sink, as text for the only file of this
// one, whose path has no variables and no marks. It returns false where that
// cannot be: it is no batch of ours.
func (s *Sink) AdoptAll(f buffer.Found) bool {
	s.buf.Begin()
	key := string(s.naming.path.append(nil, nil, nil, s.name, new(moment)))
	spec := *s.spec.(*File)
	s.buf.End()
	framing, ok := framingOf(f.Fingerprint)
	if !ok && f.Fingerprint&0xff != fileKind {
		return false
	}
	spec.framed = ok && framing == Octets
	if f.Intent != nil {
		spec.meant = &meant{path: f.Key, format: gzipwriter.Format(f.Fingerprint >> 8)}
	}
	f.Key = key
	s.buf.Adopt(f, &spec)
	return true
}

// meant is the file that a batch was being written to whose sink is gone. It is
// only looked into.
type meant struct {
	path   string
	format gzipwriter.Format
}

// settle finds out how much of a batch is in the file that it was meant
// for: all, or, of a plain file, whole lines that it begins with. A torn member
// is nothing; it is cut off by whoever writes to the file next.
func (m *meant) settle(b *buffer.Batch) (there bool, bytesThere int, err error) {
	folder := &File{Prefix: filepath.Dir(m.path), Compress: m.format}
	if !isBelow(m.path, folder.Prefix) {
		return false, 0, nil
	}
	f, err := openIntended(m.path, folder, b.Intent, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	defer f.Close()
	there, torn, err := inspect(f, b, folder, b.Bytes())
	if err != nil || !torn || m.format != gzipwriter.Plain {
		return there, 0, err
	}
	stat, err := f.Stat()
	if err != nil {
		return false, 0, err
	}
	return false, bytes.LastIndexByte(b.Bytes()[:stat.Size()-b.Intent.Offset], '\n') + 1, nil
}

// unframe appends the records of counted frames to dst, a line each.
func unframe(dst, text []byte) []byte {
	for len(text) > 0 {
		record, size := Octets.cut(text)
		dst = append(append(dst, record...), '\n')
		text = text[size:]
	}
	return dst
}

// intend notes where the member of a batch is about to be written.
func (f *file) intend(b *buffer.Batch, member []byte) {
	if f.spec.Descriptor != nil || !f.out.Regular() {
		return
	}
	f.measure()
	b.Intend(buffer.Place{
		Device: f.stat.Dev, Inode: f.stat.Ino, Offset: f.size, Length: int64(len(member)),
	})
	buffer.Step("intent")
}

// settleIntent finds out what became of a write that a kill interrupted:
// whether the member is there whole. A beginning of it is cut off.
func (w *files) settleIntent(b *buffer.Batch, spec *File, member []byte) (there bool, err error) {
	intent := b.Intent
	if intent == nil || spec.Descriptor != nil {
		return false, nil
	}
	w.drop(b.Key) // or else its lock is in our way
	f, err := openIntended(b.Key, spec, intent, unix.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		b.Intent = nil // removed since, with the member or without it
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	there, torn, err := inspect(f, b, spec, member)
	if err == nil && torn {
		err = f.Truncate(intent.Offset)
		delete(w.ends, b.Key)
	}
	if err == nil && there {
		err = f.Sync()
	}
	if err == nil {
		b.Intent = nil
	}
	return there, err
}

// openIntended opens the file that was to be written, and locks it if it is
// opened for writing: by its path, or else, since it may have been renamed, by
// its number among its neighbours.
func openIntended(path string, spec *File, intent *buffer.Place, mode int) (*os.File, error) {
	folder, err := openFolder(path, spec, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(folder)
	if f, err := openIf(folder, filepath.Base(path), intent, mode); f != nil || err != nil {
		return f, err
	}
	names, err := namesIn(folder)
	if err != nil {
		return nil, &fs.PathError{Op: "read folder", Path: filepath.Dir(path), Err: err}
	}
	for _, name := range names {
		if f, err := openIf(folder, name, intent, mode); f != nil || err != nil {
			return f, err
		}
	}
	return nil, fs.ErrNotExist
}

func namesIn(folder int) ([]string, error) {
	fd, err := openFolderAt(folder, ".")
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), ".")
	defer d.Close()
	return d.Readdirnames(-1)
}

// openIf opens a file if it is the one that was intended; nil if it is not.
func openIf(folder int, name string, intent *buffer.Place, mode int) (*os.File, error) {
	var stat unix.Stat_t
	isIt := func(err error) bool {
		return err == nil && stat.Dev == intent.Device && stat.Ino == intent.Inode && stat.Mode&unix.S_IFMT == unix.S_IFREG
	}
	if !isIt(unix.Fstatat(folder, name, &stat, unix.AT_SYMLINK_NOFOLLOW)) {
		return nil, nil
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(folder, name, mode|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err == unix.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	if !isIt(unix.Fstat(fd, &stat)) {
		f.Close()
		return nil, nil
	}
	if mode == unix.O_RDONLY {
		return f, nil
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// inspect looks whether the member of a batch is in its file, whole, or the
// file ends on a beginning of it. Another's bytes are neither.
func inspect(f *os.File, b *buffer.Batch, spec *File, member []byte) (there, torn bool, err error) {
	stat, err := f.Stat()
	if err != nil {
		return false, false, err
	}
	offset := b.Intent.Offset
	size := stat.Size() - offset
	if offset < 0 || size <= 0 {
		return false, false, nil // truncated since, or not begun
	}
	rest := io.NewSectionReader(f, offset, size)
	if torn, err = isPrefix(rest, member); err != nil {
		return false, false, err
	}
	if spec.Compress == gzipwriter.Plain {
		there, err = hasPrefix(rest, member)
		return there, torn && !there, err
	}
	s := gzipwriter.ScanMembers(rest, size)
	for s.Next() {
		if m := s.Member(); m.Ours && m.Info.Arena == b.Arena && m.Info.Sequence == b.Sequence {
			return true, false, nil
		}
	}
	if s.End() == 0 && errors.Is(s.Err(), io.ErrUnexpectedEOF) {
		// Compressed by another version, it has another end.
		info, ours := gzipwriter.FirstInfo(rest)
		torn = torn || ours && info.Arena == b.Arena && info.Sequence == b.Sequence
	}
	return false, torn, nil
}

// isPrefix reports whether all of r is a beginning of text, and not the whole.
func isPrefix(r *io.SectionReader, text []byte) (bool, error) {
	if r.Size() >= int64(len(text)) {
		return false, nil
	}
	return hasPrefix(r, text[:r.Size()])
}

// hasPrefix reports whether r begins with text.
func hasPrefix(r *io.SectionReader, text []byte) (bool, error) {
	if r.Size() < int64(len(text)) {
		return false, nil
	}
	begins := make([]byte, len(text))
	if _, err := r.ReadAt(begins, 0); err != nil && err != io.EOF {
		return false, err
	}
	return bytes.Equal(begins, text), nil
}
