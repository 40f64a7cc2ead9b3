package main

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// locate maps every dotted key of a TOML text, and every element of a list as
// key[0], to its line, from 1. It knows just enough of TOML to find keys,
// since the parser gives no positions. The text must have been parsed before;
// of any other text the result means nothing, but is made all the same.
func locate(text string) map[string]int {
	l := locator{rest: text, line: 1, lines: make(map[string]int)}
	table := ""
	// Each turn takes one header or one pair; values follow their keys.
	for l.space(); l.rest != ""; l.space() {
		before := len(l.rest)
		if l.rest[0] == '[' {
			l.take(1)
			l.skip('[') // an array of tables: its elements share one place
			table = l.key("")
			l.blank()
			l.skip(']')
			l.skip(']')
		} else {
			l.pair(table)
		}
		if len(l.rest) == before {
			l.take(1) // no TOML: go on all the same
		}
	}
	return l.lines
}

type locator struct {
	rest  string // the text from here on
	line  int    // of its first byte
	lines map[string]int
}

// take goes on by n bytes and returns them.
func (l *locator) take(n int) string {
	n = min(n, len(l.rest))
	taken := l.rest[:n]
	l.line += strings.Count(taken, "\n")
	l.rest = l.rest[n:]
	return taken
}

// skip goes on if c comes next.
func (l *locator) skip(c byte) bool {
	if l.rest != "" && l.rest[0] == c {
		l.take(1)
		return true
	}
	return false
}

// blank goes on to what is neither space nor tab.
func (l *locator) blank() { l.take(len(l.rest) - len(strings.TrimLeft(l.rest, " \t"))) }

// space goes on to what is no white space, line end or comment.
func (l *locator) space() {
	for {
		l.take(len(l.rest) - len(strings.TrimLeft(l.rest, " \t\r\n")))
		if l.rest == "" || l.rest[0] != '#' {
			return
		}
		l.takeTo("\n")
	}
}

// takeTo goes on to the first of these bytes, or to the end.
func (l *locator) takeTo(bytes string) string {
	if n := strings.IndexAny(l.rest, bytes); n >= 0 {
		return l.take(n)
	}
	return l.take(len(l.rest))
}

// note keeps the line of a key, the first one if it comes up again, as a
// table does with each dotted key below it.
func (l *locator) note(at string) {
	if _, ok := l.lines[at]; !ok {
		l.lines[at] = l.line
	}
}

// key takes a key, dotted or not, notes it and the tables that it implies,
// and returns it below the table at.
func (l *locator) key(at string) string {
	for {
		l.blank()
		name := ""
		if l.rest != "" && (l.rest[0] == '"' || l.rest[0] == '\'') {
			name = unquote(l.str())
		} else {
			name = l.takeTo(" \t\r\n.=]")
		}
		at = join(at, name)
		l.note(at)
		l.blank()
		if !l.skip('.') {
			return at
		}
	}
}

// pair takes key = value.
func (l *locator) pair(table string) {
	at := l.key(table)
	l.blank()
	l.skip('=')
	l.space()
	l.value(at)
}

// value takes a value and notes what it holds below at: the keys of an inline
// table, and the elements of a list, so that each has its own line.
func (l *locator) value(at string) {
	if l.rest == "" {
		return
	}
	switch l.rest[0] {
	case '"', '\'':
		l.str()
	case '{':
		l.list('}', func(int) { l.pair(at) })
	case '[':
		l.list(']', func(i int) {
			at := element(at, i)
			l.note(at)
			l.value(at)
		})
	default:
		l.takeTo(",]}#\n")
	}
}

// list takes a list or an inline table with its brackets. Commas, line ends
// and comments may stand before and after each of its parts.
func (l *locator) list(end byte, each func(i int)) {
	l.take(1)
	for i := 0; ; i++ {
		l.space()
		before := len(l.rest)
		if l.rest == "" || l.skip(end) {
			return
		}
		each(i)
		l.space()
		l.skip(',')
		if len(l.rest) == before {
			l.take(1)
		}
	}
}

// str takes a string of any of the four kinds and returns it as written.
func (l *locator) str() string {
	quote := l.rest[:1]
	if strings.HasPrefix(l.rest, strings.Repeat(quote, 3)) {
		quote = l.rest[:3]
	}
	for n := len(quote); n < len(l.rest); n++ {
		switch {
		case l.rest[n] == '\\' && quote[0] == '"':
			n++
		case strings.HasPrefix(l.rest[n:], quote):
			n += len(quote)
			for len(quote) == 3 && n < len(l.rest) && l.rest[n] == quote[0] {
				n++ // up to two quotes may stand before the closing three
			}
			return l.take(n)
		}
	}
	return l.take(len(l.rest))
}

// unquote is the text of a quoted key, as the TOML parser reads it.
func unquote(quoted string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &v); err != nil {
		return quoted
	}
	return v.K
}
