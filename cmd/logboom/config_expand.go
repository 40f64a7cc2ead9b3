package main

import (
	"fmt"
	"os"
	"strings"
)

// expand replaces ${env:NAME}, ${file:PATH} and $$ in every string of a part
// of the tree: tables and lists in place, a string by the value returned. A
// string that cannot be expanded becomes failed{}, so that it is complained
// about once, and its key still counts as set.
func (d *decoder) expand(at string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			v[name] = d.expand(join(at, name), e)
		}
	case []any:
		for i, e := range v {
			v[i] = d.expand(element(at, i), e)
		}
	case string:
		s, err := d.expandString(v, quoterOf(at))
		if err != nil {
			d.errorf(at, "%v", err)
			return failed{}
		}
		return s
	}
	return v
}

// quoters make text literal in a template: in a path of files, with its
// variables and marks of time, and in the form of a line.
var (
	pathQuoter = strings.NewReplacer("$", "$$", "%", "%%")
	lineQuoter = strings.NewReplacer("$", "$$")
)

// quoterOf is the quoter for the string at a key; nil if it is no template.
func quoterOf(at string) *strings.Replacer {
	switch {
	case strings.HasPrefix(at, "program.") && strings.HasSuffix(at, ".prefix"):
		return lineQuoter
	case !strings.HasPrefix(at, "sink."):
		return nil
	case strings.HasSuffix(at, ".path"):
		return pathQuoter
	case strings.HasSuffix(at, ".template"):
		return lineQuoter
	}
	return nil
}

// expandString expands one string. In a template (quote is not nil) $$ stays
// for the template's own parser, and what is inserted is made literal.
func (d *decoder) expandString(s string, quote *strings.Replacer) (string, error) {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			out.WriteString(s)
			return out.String(), nil
		}
		out.WriteString(s[:i])
		s = s[i:]
		switch {
		case strings.HasPrefix(s, "$$"):
			out.WriteByte('$')
			if quote != nil {
				out.WriteByte('$')
			}
			s = s[2:]
		case strings.HasPrefix(s, "${env:"), strings.HasPrefix(s, "${file:"):
			// What was inserted is not looked at again: a secret may hold
			// anything.
			name, rest, ok := strings.Cut(s[2:], "}")
			if !ok {
				return "", fmt.Errorf("%q has no closing brace", s)
			}
			value, err := d.insert(name)
			if err != nil {
				return "", err
			}
			if quote != nil {
				value = quote.Replace(value)
			}
			out.WriteString(value)
			s = rest
		default: // a variable of a template, or just a dollar
			out.WriteByte('$')
			s = s[1:]
		}
	}
}

// insert is the value of env:NAME or file:PATH. A file's last line feed is
// not part of it.
func (d *decoder) insert(name string) (string, error) {
	if env, ok := strings.CutPrefix(name, "env:"); ok {
		value, ok := os.LookupEnv(env)
		if !ok {
			return "", fmt.Errorf("environment variable %q is not set", env)
		}
		return value, nil
	}
	path := strings.TrimPrefix(name, "file:")
	// Secrets are files with one line, written by an editor or by echo.
	data, err := readRegular(d.abs(path), maxSecret)
	if err != nil {
		return "", fmt.Errorf("file %q: %w", path, err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}
