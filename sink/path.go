package sink

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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

// maxValue bounds a variable's value in a path, in bytes. A longer one is cut
// and gets a hash of the whole.
const maxValue = 200

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
	for _, component := range strings.Split(text[strings.LastIndexByte(fixed, '/')+1:], "/") {
		if component == ".." || component == "." {
			return nil, fmt.Errorf("path %q has a %q after a variable", text, component)
		}
	}
	return p, nil
}

// Prefix is the folder that no rendered path leaves.
func (p *Path) Prefix() string { return p.prefix }

// Fixed reports whether every message goes to the same path at all times.
func (p *Path) Fixed() bool { return !p.variables && !p.marks }

// usesMessage reports whether the path depends on a message's text.
func (p *Path) usesMessage() bool {
	for i := range p.parts {
		if p.parts[i].variable >= varMessage {
			return true
		}
	}
	return false
}

// append renders the path of one message received at t (local time).
func (p *Path) append(dst []byte, m *syslog.Message, o *Origin, sink string, t time.Time) []byte {
	for i := range p.parts {
		part := &p.parts[i]
		switch {
		case part.variable != noVariable:
			before := len(dst)
			dst = part.appendValue(dst, m, o, sink)
			if len(dst) == before {
				dst = append(dst, part.fallback...)
			}
			dst = makeSafe(dst, before)
		case part.mark != 0:
			dst, _ = part.mark.append(dst, t)
		default:
			dst = append(dst, part.literal...)
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

// makeSafe turns dst[from:] into one component of a path: '/', NUL and
// control bytes become '_', then each leading dot; what is too long is cut.
func makeSafe(dst []byte, from int) []byte {
	value := dst[from:]
	if len(value) == 0 {
		return append(dst, emptyValue...)
	}
	if len(value) > maxValue {
		h := fnv.New64a()
		h.Write(value)
		dst = append(dst[:from+maxValue], '-')
		dst = strconv.AppendUint(dst, h.Sum64(), 16)
		value = dst[from:]
	}
	leading := true
	for i, c := range value {
		leading = leading && c == '.'
		if c < 0x20 || c == '/' || c == 0x7f || leading {
			value[i] = '_'
		}
	}
	return dst
}
