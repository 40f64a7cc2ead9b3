package sink

import "bytes"

// cut returns the first record of text, without its framing, and the length
// of the whole frame. Text is not empty and begins with a frame; what is no
// frame is taken as one record.
func (f Framing) cut(text []byte) (record []byte, size int) {
	if f == Lines {
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			return text[:end], end + 1
		}
		return text, len(text)
	}
	n := 0
	for i, c := range text {
		switch {
		case '0' <= c && c <= '9' && n <= len(text):
			n = 10*n + int(c-'0')
		case c == ' ' && n <= len(text)-i-1:
			return text[i+1 : i+1+n], i + 1 + n
		default:
			return text, len(text)
		}
	}
	return text, len(text)
}

// count returns how many frames begin in the first n bytes of text.
func (f Framing) count(text []byte, n int) (frames int) {
	for at := 0; at < n; frames++ {
		_, size := f.cut(text[at:])
		at += size
	}
	return frames
}

// progress is how far a text has got.
type progress struct {
	done    int // bytes that are dealt with for good, whole frames: sent as datagrams, or refused
	begun   int // bytes that went out before, in vain as far as is known
	refused int // frames that no datagram can hold
}

// went notes that n bytes from done on went out, and returns how many frames
// of them had gone out before.
func (p *progress) went(text []byte, framing Framing, n int) (again int) {
	again = framing.count(text[p.done:], min(n, p.begun-p.done))
	p.begun = max(p.begun, p.done+n)
	return again
}

// window keeps the last whole frames that a stream took. TCP does not tell
// which of them the receiver has read: all go out again after a break. What
// the receiver's machine had acknowledged, but its program not read, is
// covered as far as the window reaches.
type window struct {
	limit   int // of text, in bytes
	framing Framing
	text    []byte
}

// add keeps what was sent, copying it.
func (w *window) add(text []byte, framing Framing) {
	if framing != w.framing {
		w.clear()
		w.framing = framing
	}
	if over := len(text) - w.limit; over >= 0 {
		w.clear()
		w.text = append(w.text, text[w.skip(text, over):]...)
		return
	}
	w.shrink(w.limit - len(text))
	w.text = append(w.text, text...)
}

// shrink forgets the oldest frames until at most n bytes are left.
func (w *window) shrink(n int) {
	if from := w.skip(w.text, len(w.text)-n); from > 0 {
		w.text = w.text[:copy(w.text, w.text[from:])]
	}
}

// skip returns the length of the first frames of text that together have at
// least n bytes.
func (w *window) skip(text []byte, n int) (size int) {
	for size < n {
		_, frame := w.framing.cut(text[size:])
		size += frame
	}
	return size
}

func (w *window) resize(limit int) {
	w.limit = limit
	w.shrink(limit)
}

func (w *window) clear() { w.text = w.text[:0] }
