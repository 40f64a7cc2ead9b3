package sink

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"logboom/syslog"
)

// Path is the template of file names: a fixed prefix, chosen by the
// operator, and what variables and strftime marks make of the rest. A value
// can never lead out of the prefix: it cannot hold a slash and cannot begin
// with a dot.
type Path struct {
	Template
	prefix    string // the folder before the first variable or mark
	variables bool
	marks     bool
}

// maxValue bounds what variables make of one component of a path, in bytes:
// the system takes 255, and a value that is cut has its hash beside it.
const maxValue = 200

// hashSize is the length of "-" and a hash in hex, at most. No value that is
// shorter is cut.
const hashSize = 17

// emptyValue stands for a variable without a value and a default.
const emptyValue = "_"

// ParsePath parses the template of a file's name.
func ParsePath(text string) (*Path, error) {
	t, err := parse(text, true)
	if err != nil {
		return nil, err
	}
	p := &Path{Template: *t}
	fixed := ""
	for i, part := range t.parts {
		if part.literal == "" {
			p.variables = p.variables || part.variable != noVariable
			p.marks = p.marks || part.mark != 0
		} else if i == 0 {
			fixed = part.literal
		}
	}
	switch {
	case text == "":
		return nil, errors.New("a path is needed")
	case strings.IndexByte(text, 0) >= 0:
		return nil, fmt.Errorf("path %q holds a NUL byte", text)
	case strings.HasSuffix(text, "/"):
		return nil, fmt.Errorf("path %q ends in a slash: it names no file", text)
	}
	p.prefix = filepath.Dir(fixed)
	if strings.HasSuffix(fixed, "/") {
		p.prefix = filepath.Clean(fixed)
	}
	for _, component := range strings.Split(p.skeleton()[strings.LastIndexByte(fixed, '/')+1:], "/") {
		if component == ".." || component == "." {
			return nil, fmt.Errorf("path %q has a %q after a variable", text, component)
		}
	}
	return p, nil
}

// skeleton is the path with a letter for each variable and mark.
func (p *Path) skeleton() string {
	var b strings.Builder
	for i := range p.parts {
		b.WriteString(cmp.Or(p.parts[i].literal, "x"))
	}
	return b.String()
}

// Prefix is the folder that no rendered path leaves.
func (p *Path) Prefix() string { return p.prefix }

// Fixed reports whether every message goes to the same path at all times.
func (p *Path) Fixed() bool { return !p.variables && !p.marks }

// Varies reports whether messages of one moment can go to different paths.
func (p *Path) Varies() bool { return p.variables }

// Timed reports whether the path changes with time.
func (p *Path) Timed() bool { return p.marks }

// usesPeer reports whether the path may hold the sender's address: as the peer,
// or as the host of a message that names none.
func (p *Path) usesPeer() bool { return usesPeer(p.parts) }

// usesMessage reports whether the path depends on a message's text.
func (p *Path) usesMessage() bool {
	for i := range p.parts {
		if p.parts[i].variable >= varMessage {
			return true
		}
	}
	return false
}

// moment is what the marks of a path become in one second, one after the
// other. Most messages of a second share it.
type moment struct {
	second int64 // Unix
	text   []byte
	ends   []int // of each mark's text
}

// render makes it that of t (local time), unless it is already.
func (n *moment) render(p *Path, t time.Time) {
	if second := t.Unix(); second != n.second || n.ends == nil {
		n.second, n.text, n.ends = second, n.text[:0], append(n.ends[:0], 0)
		for i := range p.parts {
			if mark := p.parts[i].mark; mark != 0 {
				n.text, _ = mark.append(n.text, t)
				n.ends = append(n.ends, len(n.text))
			}
		}
	}
}

// append renders the path of one message.
func (p *Path) append(dst []byte, m *syslog.Message, o *Origin, sink string, at *moment) []byte {
	room := maxValue // of the component
	marks := 0
	for i := range p.parts {
		part := &p.parts[i]
		switch {
		case part.variable != noVariable:
			before := len(dst)
			dst = part.appendValue(dst, m, o, sink)
			if len(dst) == before {
				dst = append(dst, part.fallback...)
			}
			dst = makeSafe(dst, before, room)
			room = max(room-(len(dst)-before), 0)
		case part.mark != 0:
			dst = append(dst, at.text[at.ends[marks]:at.ends[marks+1]]...)
			marks++
		default:
			dst = append(dst, part.literal...)
			if strings.IndexByte(part.literal, '/') >= 0 {
				room = maxValue
			}
		}
	}
	return dst
}

// overflow is the path for messages whose names are too many.
func (p *Path) overflow() string {
	name := p.text[strings.LastIndexByte(p.text, '/')+1:]
	if dot := strings.IndexByte(name, '.'); dot >= 0 && !strings.ContainsAny(name[dot:], "$%") {
		return filepath.Join(p.prefix, "_overflow"+name[dot:])
	}
	for _, end := range []string{".log.gz", ".gz", ".log"} {
		if strings.HasSuffix(name, end) {
			return filepath.Join(p.prefix, "_overflow"+end)
		}
	}
	return filepath.Join(p.prefix, "_overflow")
}

// appendValues appends the values of the variables alone: the part of a path
// that senders invent.
func (p *Path) appendValues(dst []byte, m *syslog.Message, o *Origin, sink string) []byte {
	for i := range p.parts {
		if part := &p.parts[i]; part.variable != noVariable {
			dst = append(part.appendValue(dst, m, o, sink), 0)
		}
	}
	return dst
}

// makeSafe makes dst[from:] fit to be part of a component of a path: '/', NUL
// and control bytes become '_', then each leading dot. What is longer than room
// is cut and gets a hash of the whole, the same at all times: names that differ
// late stay apart.
func makeSafe(dst []byte, from, room int) []byte {
	value := dst[from:]
	if len(value) == 0 {
		return append(dst, emptyValue...)
	}
	if len(value) > max(room, hashSize) {
		h := fnv.New64a()
		h.Write(value)
		dst = append(dst[:from+wholeRunes(value, room)], '-')
		dst = strconv.AppendUint(dst, h.Sum64(), 16)
		value = dst[from:]
	}
	for i := 0; i < len(value) && value[i] == '.'; i++ {
		value[i] = '_'
	}
	for i, c := range value {
		if c < 0x20 || c == '/' || c == 0x7f {
			value[i] = '_'
		}
	}
	return dst
}

// wholeRunes returns the length of the longest beginning of text, of at most n
// bytes and less than all, that does not end inside a UTF-8 character.
func wholeRunes(text []byte, n int) int {
	for cut := n; cut > 0 && cut > n-utf8.UTFMax; cut-- {
		if utf8.RuneStart(text[cut]) {
			return cut
		}
	}
	return n // no UTF-8
}
