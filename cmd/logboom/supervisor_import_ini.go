package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ini is a supervisord configuration as Python's RawConfigParser reads it,
// with the files that it includes.
type ini struct {
	sections []*iniSection // in the order of the files
	notes    []string      // what could not be read
}

type iniSection struct {
	name    string
	options map[string]string // by lower-case name; lines of one value are joined by LF
	order   []string
}

// section finds a section; with make it is added if it is missing.
func (f *ini) section(name string, make bool) *iniSection {
	for _, s := range f.sections {
		if s.name == name {
			return s
		}
	}
	if !make {
		return nil
	}
	s := &iniSection{name: name, options: map[string]string{}}
	f.sections = append(f.sections, s)
	return s
}

func (s *iniSection) set(name, value string) {
	if _, ok := s.options[name]; !ok {
		s.order = append(s.order, name)
	}
	s.options[name] = value
}

// readINI reads a file and those of its [include] section. %(here)s is the
// folder of the file that it stands in.
func readINI(path string) (*ini, error) {
	f := &ini{}
	if err := f.read(path); err != nil {
		return nil, err
	}
	include := f.section("include", false)
	if include == nil {
		return f, nil
	}
	host, _ := os.Hostname()
	for _, pattern := range strings.Fields(include.options["files"]) {
		pattern = strings.ReplaceAll(pattern, "%(host_node_name)s", host)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		paths, _ := filepath.Glob(pattern) // sorted
		if len(paths) == 0 {
			f.notes = append(f.notes, fmt.Sprintf("[include] files: nothing matches %s", pattern))
		}
		for _, path := range paths {
			if err := f.read(path); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// read adds one file.
func (f *ini) read(path string) error {
	data, err := readRegular(path, maxConfig)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	// What the folder's name holds is text, not the beginning of another name.
	here := strings.NewReplacer("%(here)s", strings.ReplaceAll(dir, "%", "%%"))
	var in *iniSection
	option, indent := "", 0
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		number++
		text := withoutComment(line)
		depth := len(line) - len(strings.TrimLeft(line, " \t"))
		name, value, isOption := cutOption(text)
		switch {
		case text == "":
		case option != "" && depth > indent: // the value goes on
			in.set(option, in.options[option]+"\n"+here.Replace(text))
		case strings.HasPrefix(text, "[") && strings.Contains(text, "]"):
			in = f.section(strings.TrimSpace(text[1:strings.LastIndexByte(text, ']')]), true)
			option, indent = "", depth
		case in == nil || !isOption:
			return fmt.Errorf("%s:%d: %q is neither a section nor an option", path, number, text)
		default:
			option, indent = strings.ToLower(name), depth
			in.set(option, here.Replace(value))
		}
	}
	return nil
}

// withoutComment takes off what follows a ; or # that begins the line or
// stands after a blank, and blanks at both ends.
func withoutComment(line string) string {
	for i := range len(line) {
		if (line[i] == ';' || line[i] == '#') && (i == 0 || strings.IndexByte(" \t\r\n\f\v", line[i-1]) >= 0) {
			line = line[:i]
			break
		}
	}
	return strings.TrimSpace(line)
}

// cutOption divides an option at its first = or colon.
func cutOption(text string) (name, value string, ok bool) {
	i := strings.IndexAny(text, "=:")
	if i <= 0 {
		return "", "", false
	}
	return strings.TrimSpace(text[:i]), strings.TrimSpace(text[i+1:]), true
}

// splitEnvironment reads KEY="value",KEY2=value as supervisord does: quotes
// allow commas in a value, and nothing escapes a quote.
func splitEnvironment(s string) (map[string]string, error) {
	env := make(map[string]string)
	for rest := s; ; {
		rest = strings.TrimLeft(rest, ", \t\n")
		if rest == "" {
			return env, nil
		}
		name, after, ok := strings.Cut(rest, "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\n,\"'") {
			return nil, fmt.Errorf("%q is not KEY=value", rest)
		}
		after = strings.TrimLeft(after, " \t\n")
		var value string
		if after != "" && (after[0] == '"' || after[0] == '\'') {
			end := strings.IndexByte(after[1:], after[0])
			if end < 0 {
				return nil, fmt.Errorf("%s: a quote has no end", name)
			}
			value, rest = after[1:1+end], after[end+2:]
		} else {
			end := strings.IndexAny(after, ", \t\n")
			if end < 0 {
				end = len(after)
			}
			value, rest = strings.Trim(after[:end], `"'`), after[end:]
		}
		env[name] = value
	}
}

// programNames lists the x of all [program:x], sorted by where they stand.
func (f *ini) programNames() (names []string) {
	for _, s := range f.sections {
		if name, ok := strings.CutPrefix(s.name, "program:"); ok {
			names = append(names, name)
		}
	}
	return names
}

// groupOf finds the [group:x] that lists a program; "" if none does.
func (f *ini) groupOf(program string) string {
	for _, s := range f.sections {
		name, ok := strings.CutPrefix(s.name, "group:")
		members := strings.FieldsFunc(s.options["programs"], func(r rune) bool { return strings.ContainsRune(", \t\n", r) })
		if ok && slices.Contains(members, program) {
			return name
		}
	}
	return ""
}

// sortedKeys lists the keys of a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
