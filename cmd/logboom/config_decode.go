package main

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"logboom/proc"
)

// Error is one thing that is wrong with a configuration.
type Error struct {
	File string // as given, or as its include found it
	Line int    // from 1; 0 where no line is to blame
	Key  string // dotted; "" where no key is to blame
	Text string

	file int // number of the file in the order of reading, for sorting
}

func (e Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	return s + ": " + e.Text
}

// Errors is everything that is wrong, in the order of the files.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// decoder fills structs, as their tags say (see [Config]), from the tables
// that the TOML parser made. It goes on after an error and gathers them all;
// what could not be read keeps its default.
//
// Places in the tree are named by their dotted key, elements of a list as
// key[0]: at, in what follows.
type decoder struct {
	base  string // absolute folder that relative paths start from
	files []string
	where map[string]place // of every key
	errs  Errors

	processes map[string]string // the program of each name of a process
}

// place is where a key is: in files[file], at a line from 1.
type place struct{ file, line int }

// failed stands in the tree for a value that was already complained about.
type failed struct{}

// errorf records an error at a key. It never ends the reading: whoever finds
// an error leaves the default in place, or nothing, and goes on, so that one
// run of check shows all there is to mend.
func (d *decoder) errorf(at, format string, args ...any) {
	p := d.place(at)
	d.errs = append(d.errs, Error{File: d.files[p.file], Line: p.line, Key: at, Text: fmt.Sprintf(format, args...), file: p.file})
}

// place is where a key is, or else the nearest table or list around it.
func (d *decoder) place(at string) place {
	for at != "" {
		// A key in quotes may hold a dot: then a shorter text is tried that
		// names nothing, and the table around it is found all the same.
		if p, ok := d.where[at]; ok {
			return p
		}
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	return place{}
}

// show is a place in words.
func (d *decoder) show(p place) string { return fmt.Sprintf("%s:%d", d.files[p.file], p.line) }

// err is every error so far, in the order of the files, or nil.
func (d *decoder) err() error {
	if len(d.errs) == 0 {
		return nil
	}
	// Tables of Go have no order: the errors get that of the text.
	slices.SortFunc(d.errs, func(a, b Error) int {
		return cmp.Or(a.file-b.file, a.Line-b.Line, cmp.Compare(a.Key, b.Key), cmp.Compare(a.Text, b.Text))
	})
	// One value that is meant for two fields is wrong for both.
	d.errs = slices.Compact(d.errs)
	return d.errs
}

// maxAt bounds a dotted key, in bytes: no key of ours comes near, and a nest
// of a million lists must not cost the square of that.
const maxAt = 1000

// join is the dotted key of name in the table at.
func join(at, name string) string {
	if len(at) > maxAt {
		return at
	}
	name = toml.Key{name}.String()
	if at == "" {
		return name
	}
	return at + "." + name
}

// element is the key of one element of the list at.
func element(at string, i int) string {
	if len(at) > maxAt {
		return at
	}
	return fmt.Sprintf("%s[%d]", at, i)
}

// field is one key of a section: where its value goes and what its tags say.
type field struct {
	name  string
	opts  []string
	tag   reflect.StructTag
	value reflect.Value
}

func (f *field) has(opt string) bool { return slices.Contains(f.opts, opt) }

// allowed are the values that the field's enum lists; none: any.
func (f *field) allowed() []string {
	words := strings.Fields(f.tag.Get("enum"))
	if len(words) > 0 && f.has("auto") {
		words = append([]string{"auto"}, words...)
	}
	return words
}

// effective reports whether the key has an effect in a section of these kinds.
func (f *field) effective(kinds []string) bool {
	only := strings.Fields(f.tag.Get("only"))
	return len(only) == 0 || slices.ContainsFunc(only, func(k string) bool { return slices.Contains(kinds, k) })
}

// fields lists the keys of a struct, those of embedded structs in their
// place, and the keys that are not supported yet.
func fields(v reflect.Value) (known []field, later []string) {
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		switch tag := sf.Tag.Get("toml"); {
		case sf.Anonymous:
			inner, more := fields(v.Field(i))
			for j := range inner {
				if sf.Tag != "" {
					inner[j].tag += " " + sf.Tag
				}
			}
			known, later = append(known, inner...), append(later, more...)
		case sf.Name == "_":
			later = append(later, strings.Fields(sf.Tag.Get("later"))...)
		case tag != "-":
			opts := strings.Split(tag, ",")
			known = append(known, field{opts[0], opts[1:], sf.Tag, v.Field(i)})
		}
	}
	return known, later
}

// table fills dst, a pointer to a struct that holds the defaults, from a
// table of the tree. Keys are taken in the order of the struct, those that it
// does not have are refused.
func (d *decoder) table(at string, t map[string]any, dst any) {
	known, later := fields(reflect.ValueOf(dst).Elem())
	var names []string
	if at == "" {
		names = append(names, sectionTables...)
	}
	for i := range known {
		f := &known[i]
		names = append(names, f.name)
		if v, ok := t[f.name]; ok {
			d.set(join(at, f.name), f, v)
		} else if f.has("required") {
			d.errorf(join(at, f.name), "is required")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if !slices.Contains(names, name) {
			d.unknown(join(at, name), name, names, later)
		}
	}
}

// effects complains about keys of a filled section that have no effect in it:
// who sets one believes that it does something. It comes after the section
// was completed, since its kinds depend on values, also on defaults.
func (d *decoder) effects(at string, t map[string]any, section kinder) {
	known, _ := fields(reflect.ValueOf(section).Elem())
	for i := range known {
		f := &known[i]
		if _, ok := t[f.name]; ok && !f.effective(section.kinds()) {
			d.errorf(join(at, f.name), "has no effect here: it is for %s alone",
				strings.Join(strings.Fields(f.tag.Get("only")), ", "))
		}
	}
}

// unknown complains about a key that a section does not have, and helps: it
// may be one of a later version, a slip of the pen, or in the wrong place.
func (d *decoder) unknown(at, name string, known, later []string) {
	if slices.Contains(later, name) {
		d.errorf(at, "is not supported yet")
	} else if near := nearest(name, known); near != "" {
		d.errorf(at, "unknown key: did you mean %s?", near)
	} else if homes := homesOf(name); homes != nil {
		d.errorf(at, "unknown key here: it belongs to %s", strings.Join(homes, ", "))
	} else {
		d.errorf(at, "unknown key")
	}
}

// set fills one field from a value of the tree, as the field's type and
// options say. The order of the cases matters: options go before types.
func (d *decoder) set(at string, f *field, v any) {
	_, bad := v.(failed)
	if bad || v == "auto" && f.has("auto") {
		return
	}
	dst := f.value
	_, isTable := v.(map[string]any)
	switch {
	case f.has("each") && !isTable: // severity = "info": of every stream
		known, _ := fields(dst)
		for i := range known {
			d.set(at, &known[i], v)
		}
	case f.has("command") && dst.Kind() == reflect.Slice:
		d.command(at, f, v)
	case isScalar(dst.Type()):
		if err := d.scalar(f, v); err != nil {
			d.errorf(at, "%v", err)
		}
	default:
		d.composite(at, f, v)
	}
}

// composite fills a field that is a bool or has parts.
func (d *decoder) composite(at string, f *field, v any) {
	dst := f.value
	switch dst.Kind() {
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			dst.SetBool(b)
			return
		}
		d.errorf(at, "must be true or false, not %s", show(v))
	case reflect.Struct:
		if t, ok := v.(map[string]any); ok {
			d.table(at, t, dst.Addr().Interface())
			return
		}
		d.errorf(at, "must be a table, not %s", show(v))
	case reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			d.errorf(at, "must be a list, not %s", show(v))
			return
		}
		// A fresh list, never nil: the default is replaced, not added to, and
		// an empty list is told from none.
		dst.Set(reflect.MakeSlice(dst.Type(), len(list), len(list)))
		for i, e := range list {
			d.set(element(at, i), &field{tag: f.tag, value: dst.Index(i)}, e)
		}
	case reflect.Map:
		d.strings(at, dst, v)
	default:
		panic("config: no way to fill a " + dst.Type().String())
	}
}

// strings fills a map of strings, such as an environment.
func (d *decoder) strings(at string, dst reflect.Value, v any) {
	t, ok := v.(map[string]any)
	if !ok {
		d.errorf(at, "must be a table, not %s", show(v))
		return
	}
	m := make(map[string]string, len(t))
	for name, v := range t {
		switch s, isString := v.(string); {
		case !isString:
			if _, bad := v.(failed); !bad {
				d.errorf(join(at, name), "must be a string, not %s", show(v))
			}
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(s, "\x00"):
			d.errorf(join(at, name), "a name must be neither empty nor hold =, and nothing a NUL: %q", name+"="+s)
		default:
			m[name] = s
		}
	}
	dst.Set(reflect.ValueOf(m))
}

// command fills a list of words from a list, or from a string by splitting it.
func (d *decoder) command(at string, f *field, v any) {
	words := f.value.Addr().Interface().(*[]string)
	if s, ok := v.(string); ok {
		var err error
		if *words, err = proc.SplitCommand(s); err != nil {
			d.errorf(at, "%v", err)
			return
		}
	} else {
		before := len(d.errs) // a word that is no string is enough to say
		d.composite(at, f, v)
		if len(d.errs) > before {
			return
		}
	}
	switch {
	case len(*words) == 0 && f.has("omitempty"):
	case len(*words) == 0 || (*words)[0] == "":
		d.errorf(at, "names no program")
	case slices.ContainsFunc(*words, func(w string) bool { return strings.Contains(w, "\x00") }):
		d.errorf(at, "holds a NUL byte: %q", *words)
	}
}

// isScalar reports whether one string or number makes a value of the type.
func isScalar(t reflect.Type) bool {
	_, foreign := scalars[t]
	return foreign || t.Kind() == reflect.String || t == reflect.TypeFor[int]() || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// scalar fills a field whose value is one word or number. An error leaves the
// field as it was, and quotes the value.
func (d *decoder) scalar(f *field, v any) error {
	dst := f.value
	if dst.Type() == reflect.TypeFor[int]() || dst.Type() == reflect.TypeFor[time.Duration]() {
		n, err := f.number(v)
		if err == nil {
			dst.SetInt(n)
		}
		return err
	}
	s, ok := v.(string)
	// autorestart = true: a boolean is a word where the enum has it.
	if b, isBool := v.(bool); isBool && slices.Contains(f.allowed(), "true") {
		s, ok = strconv.FormatBool(b), true
	}
	if n, isInt := v.(int64); isInt && f.has("id") {
		s, ok = strconv.FormatInt(n, 10), true
	}
	if !ok {
		return fmt.Errorf("must be a string, not %s", show(v))
	}
	if err := f.checkWord(s); err != nil {
		return err
	}
	if sc, ok := scalars[dst.Type()]; ok {
		x, err := sc.parse(s)
		if err == nil {
			dst.Set(reflect.ValueOf(x))
		}
		return err
	}
	if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	// What is left are paths, addresses and templates, and the system takes
	// none of them with a NUL.
	if strings.Contains(s, "\x00") {
		return fmt.Errorf("%q holds a NUL byte", s)
	}
	if f.has("path") {
		s = d.abs(s)
	}
	dst.SetString(s)
	return nil
}

// checkWord holds a string against the field's enum.
func (f *field) checkWord(s string) error {
	words := f.allowed()
	switch {
	case len(words) == 0 || slices.Contains(words, s):
		return nil
	case slices.Contains(strings.Fields(f.tag.Get("later")), s):
		return fmt.Errorf("%q is not supported yet", s)
	}
	return notOneOf(s, words)
}

// number reads an integer, size, time or id and holds it against the bounds.
func (f *field) number(v any) (int64, error) {
	n, err := f.parse(v)
	if err != nil {
		return 0, err
	}
	if limit, ok := f.bound("min"); ok && n < limit {
		return 0, fmt.Errorf("must be at least %s, not %s", f.tag.Get("min"), show(v))
	}
	if limit, ok := f.bound("max"); ok && n > limit {
		return 0, fmt.Errorf("must be at most %s, not %s", f.tag.Get("max"), show(v))
	}
	return n, nil
}

// bound is the value of a min or max tag. A wrong one is a bug in Config.
func (f *field) bound(tag string) (int64, bool) {
	limit, ok := f.tag.Lookup(tag)
	if !ok {
		return 0, false
	}
	var v any = limit
	if n, err := strconv.ParseInt(limit, 10, 64); err == nil {
		v = n
	}
	n, err := f.parse(v)
	if err != nil {
		panic(err)
	}
	return n, true
}

// parse reads the value of a number's field: an integer, or what the field's
// options make of a string.
func (f *field) parse(v any) (int64, error) {
	n, isInt := v.(int64)
	s, isString := v.(string)
	if isInt {
		s = strconv.FormatInt(n, 10)
	}
	isTime := f.value.Type() == reflect.TypeFor[time.Duration]()
	switch {
	case isTime && isInt && (f.has("seconds") || n == 0): // 0 needs no unit
		return parseDuration(s + "s")
	case isTime && isString:
		return parseDuration(s)
	case isTime:
		return 0, fmt.Errorf(`must be a time with a unit, as in "1s", not %s`, show(v))
	case f.has("size") && (isInt || isString):
		var size Size
		err := size.UnmarshalText([]byte(s))
		return int64(size), err
	case f.has("size"):
		return 0, fmt.Errorf(`must be a size, as in "64KiB", not %s`, show(v))
	case (f.has("user") || f.has("group")) && (isInt || isString):
		id, err := parseID(s, f.has("group"))
		return int64(id), err
	case !isInt:
		return 0, fmt.Errorf("must be a whole number, not %s", show(v))
	}
	return n, nil
}

// parseDuration is a time in nanoseconds.
func parseDuration(s string) (int64, error) {
	var d Duration
	err := d.UnmarshalText([]byte(s))
	return int64(d), err
}

// abs makes a path absolute; "" stays.
func (d *decoder) abs(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(d.base, path)
}

// show quotes a value of the tree for an error.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	}
	return fmt.Sprint(v)
}
