package proc

import (
	"errors"
	"fmt"
	"strings"
)

// SplitCommand splits a command line into words as a POSIX shell would
// (Shell Command Language, section 2.2): by blanks, with single quotes, double
// quotes and backslashes. Nothing is expanded and no character but these is
// special, so "$HOME", "*", "|" and "#" are kept as they are.
func SplitCommand(s string) ([]string, error) {
	var words []string
	rest := s
	for {
		rest = strings.TrimLeft(rest, " \t\n")
		if rest == "" {
			return words, nil
		}
		word, after, ok, err := cutWord(rest)
		if err != nil {
			return nil, fmt.Errorf("command %q: %w", s, err)
		}
		if ok {
			words = append(words, word)
		}
		rest = after
	}
}

var (
	errSingle    = errors.New("single quote without end")
	errDouble    = errors.New("double quote without end")
	errBackslash = errors.New("nothing follows the last backslash")
)

// cutWord takes the first word off s, which does not begin with a blank. ok is
// false where there is none: s began with an escaped line end.
func cutWord(s string) (word, rest string, ok bool, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case ' ', '\t', '\n':
			return b.String(), s[i:], ok, nil
		case '\'':
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				return "", "", false, errSingle
			}
			b.WriteString(s[i+1 : i+1+n])
			i += n + 1
			ok = true
		case '"':
			n := cutDouble(&b, s[i+1:])
			if n < 0 {
				return "", "", false, errDouble
			}
			i += n
			ok = true
		case '\\':
			i++
			if i == len(s) {
				return "", "", false, errBackslash
			}
			if s[i] != '\n' { // which joins two lines
				b.WriteByte(s[i])
				ok = true
			}
		default:
			b.WriteByte(c)
			ok = true
		}
	}
	return b.String(), "", ok, nil
}

// cutDouble appends the text of a double-quoted string, s being what follows
// the opening quote, and returns how many bytes it took with the closing
// quote; -1 without one. A backslash is special only before the four
// characters that a shell would treat, and before a line end.
func cutDouble(b *strings.Builder, s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '"' {
			return i + 1
		}
		if c == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if c = s[i]; c == '\n' {
				continue
			}
		}
		b.WriteByte(c)
	}
	return -1
}
