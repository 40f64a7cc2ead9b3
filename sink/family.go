package sink

import (
	"path/filepath"
	"regexp"
	"strings"
)

// family knows the files that one [Path] leads to: those of all values of its
// variables, at all times, and what they are called when they are rotated.
//
// The files that differ in time alone are one line of descent; each line is
// rotated and kept by itself.
type family struct {
	folder string           // the prefix, which all files are below
	below  []*regexp.Regexp // the components of a name below it; groups are marks of time
	first  int              // the first component that has a mark, or else the last
	named  int              // the last component that has a variable; -1: none
}

// familiesOf returns the family of a path and, if it has variables, that of its
// overflow path.
func familiesOf(p *Path) []*family {
	families := []*family{newFamily(p)}
	if p.variables {
		overflow := &Path{prefix: p.prefix}
		overflow.parts = []part{{literal: p.overflow()}}
		families = append(families, newFamily(overflow))
	}
	return families
}

// newFamily returns the family of a path.
func newFamily(p *Path) *family {
	f := &family{folder: p.prefix, first: -1, named: -1}
	var pattern strings.Builder
	timed := false
	end := func() {
		if timed && f.first < 0 {
			f.first = len(f.below)
		}
		f.below = append(f.below, regexp.MustCompile(`(?s)\A`+pattern.String()+`\z`))
		pattern.Reset()
		timed = false
	}
	for i := range p.parts {
		part := &p.parts[i]
		switch literal := part.literal; {
		case part.variable != noVariable:
			pattern.WriteString(`.+`)
			f.named = len(f.below)
		case part.mark != 0:
			pattern.WriteString("(" + part.mark.pattern() + ")")
			timed = true
		default:
			if i == 0 { // up to its last slash it is the prefix
				literal = literal[strings.LastIndexByte(literal, '/')+1:]
			}
			for j, c := range strings.Split(literal, "/") {
				if j > 0 && pattern.Len() > 0 { // else a doubled slash
					end()
				}
				pattern.WriteString(regexp.QuoteMeta(c))
			}
		}
	}
	end()
	if f.first < 0 {
		f.first = len(f.below) - 1
	}
	return f
}

// timeless is the component of a name with its marks of time blanked; false if
// it is none of the family's. A rotated file's is that of the original.
func (f *family) timeless(depth int, name string) (string, bool) {
	var at []int
	if depth == len(f.below)-1 {
		if original, ok := originalName(name); ok {
			if at = f.below[depth].FindStringSubmatchIndex(original); at != nil {
				name = original
			}
		}
	}
	if at == nil {
		at = f.below[depth].FindStringSubmatchIndex(name)
	}
	if at == nil {
		return "", false
	}
	var b strings.Builder
	last := 0
	for i := 2; i < len(at); i += 2 {
		b.WriteString(name[last:at[i]])
		b.WriteByte(0)
		last = at[i+1]
	}
	b.WriteString(name[last:])
	return b.String(), true
}

// line is the line of descent of a rendered path, by its components; nil if it
// is none of the family's, such as the overflow path.
func (f *family) line(path string) []string {
	below, err := filepath.Rel(f.folder, path)
	names := strings.Split(below, "/")
	if err != nil || len(names) != len(f.below) {
		return nil
	}
	for i, name := range names {
		var ok bool
		if names[i], ok = f.timeless(i, name); !ok {
			return nil
		}
	}
	return names
}

// patterns are what the marks of time look like that are not just two digits.
var patterns = map[mark]string{
	'Y': `\d{4}`, 'G': `\d{4}`, 'e': `[ \d]\d`, 'j': `\d{3}`, 'p': `[AP]M`, 's': `\d+`, 'u': `\d`, 'w': `\d`,
	'b': `[A-Z][a-z]{2}`, 'h': `[A-Z][a-z]{2}`, 'a': `[A-Z][a-z]{2}`, 'B': `[A-Z][a-z]{2,8}`, 'A': `[A-Z][a-z]{5,8}`,
	'z': `[-+]\d{4}`, 'Z': `[-+A-Z\d]+`, 'F': `\d{4}-\d\d-\d\d`, 'T': `\d\d:\d\d:\d\d`, 'R': `\d\d:\d\d`,
}

// pattern is a regular expression of all that the mark may become.
func (m mark) pattern() string {
	if p, ok := patterns[m]; ok {
		return p
	}
	return `\d\d`
}
