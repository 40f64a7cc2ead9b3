package main

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// appendConfig appends the whole config as TOML, every default included, in
// a form that Load reads as the same Config. Keys that have no effect are
// left out, since Load refuses them.
func appendConfig(dst []byte, cfg *Config) []byte {
	dst = appendSection(dst, "", cfg)
	for _, s := range []struct {
		name    string
		section any
	}{{"log", &cfg.Log}, {"memory", &cfg.Memory}, {"http", &cfg.HTTP}, {"batch", &cfg.Batch}} {
		dst = appendSection(dst, s.name, s.section)
	}
	dst = appendNamed(dst, "source", cfg.Syslog)
	dst = appendNamed(dst, "source", cfg.FIFOs)
	dst = appendNamed(dst, "source", cfg.Stdin)
	dst = appendNamed(dst, "program", cfg.Programs)
	dst = appendNamed(dst, "sink", cfg.Files)
	dst = appendNamed(dst, "sink", cfg.Forwards)
	return appendNamed(dst, "sink", cfg.Streams)
}

// appendNamed appends sections that have a Name.
func appendNamed[T any](dst []byte, kind string, list []T) []byte {
	for i := range list {
		name := reflect.ValueOf(&list[i]).Elem().FieldByName("Name").String()
		dst = appendSection(dst, join(kind, name), &list[i])
	}
	return dst
}

// appendSection appends a table with its header; the top of the file has
// none, and its tables are sections of their own.
func appendSection(dst []byte, header string, section any) []byte {
	if header != "" {
		dst = fmt.Appendf(dst, "\n[%s]\n", header)
	}
	known, _ := fields(reflect.ValueOf(section).Elem())
	for i := range known {
		f := &known[i]
		if k, ok := section.(kinder); ok && !f.effective(k.kinds()) || !f.printed() {
			continue
		}
		if header == "" && f.value.Kind() == reflect.Struct {
			continue // [log] and the like come after all keys of the top
		}
		dst = append(dst, f.name...)
		dst = append(dst, " = "...)
		dst = appendValue(dst, f)
		dst = append(dst, '\n')
	}
	return dst
}

// printed reports whether the field has a value that the config can say. An
// owner that is not set has none, nor has an optional key that is empty.
func (f *field) printed() bool {
	if f.has("user") || f.has("group") {
		return f.value.Int() >= 0
	}
	return !f.has("omitempty") || !f.value.IsZero()
}

// isTemplateField tells templates, whose dollars are their own: they were
// left alone by expandString, and are printed as they stand.
func (f *field) isTemplateField() bool {
	return f.name == "template" || f.name == "prefix" || f.name == "path" && !f.has("path")
}

// appendValue appends what decoder.set reads back as the field's value. Its
// cases mirror those of set.
func appendValue(dst []byte, f *field) []byte {
	v := f.value
	if f.has("auto") && v.CanInt() && v.Int() == Auto {
		return append(dst, `"auto"`...)
	}
	if sc, ok := scalars[v.Type()]; ok {
		return appendString(dst, escapeDollars(sc.format(v.Interface())))
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		return appendString(dst, escapeDollars(text(m)))
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case reflect.String:
		switch {
		case f.isTemplateField():
			return appendString(dst, v.String())
		case slices.Contains(f.allowed(), "true") && v.String() != "unexpected": // autorestart
			return append(dst, v.String()...)
		}
		return appendString(dst, escapeDollars(v.String()))
	case reflect.Int:
		switch {
		case f.has("size"):
			return appendString(dst, text(Size(v.Int())))
		case f.has("user") || f.has("group"):
			return appendString(dst, strconv.FormatInt(v.Int(), 10))
		}
		return strconv.AppendInt(dst, v.Int(), 10)
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range v.Len() {
			dst = appendSeparator(dst, i)
			dst = appendValue(dst, &field{value: v.Index(i)})
		}
		return append(dst, ']')
	case reflect.Struct, reflect.Map:
		return appendTable(dst, v)
	}
	panic("config: no way to print a " + v.Type().String())
}

// appendTable appends a struct or a map of strings as an inline table.
func appendTable(dst []byte, v reflect.Value) []byte {
	dst = append(dst, "{ "...)
	if m, ok := v.Interface().(map[string]string); ok {
		for i, name := range slices.Sorted(maps.Keys(m)) {
			dst = appendSeparator(dst, i)
			dst = appendString(dst, name)
			dst = append(dst, " = "...)
			dst = appendString(dst, escapeDollars(m[name]))
		}
		return append(dst, " }"...)
	}
	known, _ := fields(v)
	n := 0
	for i := range known {
		if known[i].printed() {
			dst = appendSeparator(dst, n)
			dst = append(dst, known[i].name...)
			dst = append(dst, " = "...)
			dst = appendValue(dst, &known[i])
			n++
		}
	}
	return append(dst, " }"...)
}

func appendSeparator(dst []byte, i int) []byte {
	if i > 0 {
		dst = append(dst, ", "...)
	}
	return dst
}

// escapeDollars doubles the dollars that decoder.expandString would take for
// more than themselves, and no others: a regular expression stays readable.
func escapeDollars(s string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for i := range len(s) {
		out.WriteByte(s[i])
		if s[i] == '$' && i+1 < len(s) && (s[i+1] == '$' || s[i+1] == '{') {
			out.WriteByte('$')
		}
	}
	return out.String()
}

// appendString appends a TOML basic string. A byte that is no UTF-8 cannot be
// said in TOML: Load accepts none, and here it becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case unicode.IsControl(r):
			dst = fmt.Appendf(dst, `\u%04X`, r)
		default:
			dst = append(dst, string(r)...)
		}
	}
	return append(dst, '"')
}
