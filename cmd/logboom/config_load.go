package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// Bounds of what a config may read, in bytes: one file of it, and what one
// ${file:} inserts. Both are far above any real one; a wrong path to something
// huge is an error instead of a machine out of memory.
const (
	maxConfig = 1 << 20
	maxSecret = 64 << 10
)

// Load reads the config file at path, and the files that it includes, into a
// valid Config. It touches nothing that the config names, but for reading
// what ${file:} inserts and looking users up. An error is an [Errors] and
// holds all that is wrong; then there is no Config at all.
func Load(path string) (*Config, error) {
	base, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, Errors{{File: path, Text: err.Error()}}
	}
	d := &decoder{base: base, where: make(map[string]place)}
	// Files are read first, all of them; then strings are expanded, on one
	// tree; then it is decoded. With a file missing the rest would only lead
	// to errors that are none.
	tree, _ := d.read(path)
	tree = d.include(tree)
	if tree == nil {
		return nil, d.err()
	}
	d.expand("", tree)
	cfg := d.config(tree)
	if err := d.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// read parses one file. It returns the tree, nil if there is none, and the
// line of each key.
func (d *decoder) read(path string) (map[string]any, map[string]int) {
	file := len(d.files)
	d.files = append(d.files, path)
	data, err := readRegular(path, maxConfig)
	tree := map[string]any{}
	if err == nil {
		_, err = toml.Decode(string(data), &tree)
	}
	if err != nil {
		e := Error{File: path, Text: err.Error(), file: file}
		var pe toml.ParseError
		if errors.As(err, &pe) {
			e.Line, e.Key, e.Text = pe.Position.Line, pe.LastKey, pe.Message
		}
		d.errs = append(d.errs, e)
		return nil, nil
	}
	// A key that two files set is placed where it was first: merge refuses the
	// second, and what else is wrong with it can wait.
	lines := locate(string(data))
	for at, line := range lines {
		if _, taken := d.where[at]; !taken {
			d.where[at] = place{file, line}
		}
	}
	return tree, lines
}

// include adds the files that the main one names. Their sections join its
// own. It returns nil if any of the files could not be read.
func (d *decoder) include(tree map[string]any) map[string]any {
	v, ok := tree["include"]
	delete(tree, "include")
	if !ok {
		return tree
	}
	var patterns []string
	d.set("include", &field{value: reflect.ValueOf(&patterns).Elem()}, d.expand("include", v))
	for i, pattern := range patterns {
		glob := pattern
		if !filepath.IsAbs(glob) {
			// Not d.abs: errors name the files as the main one was named.
			glob = filepath.Join(filepath.Dir(d.files[0]), glob)
		}
		// A pattern may match nothing: conf.d is often empty. A name may not.
		paths, err := filepath.Glob(glob)
		if err != nil || paths == nil && !strings.ContainsAny(pattern, `*?[`) {
			d.errorf(element("include", i), "%q names no file", pattern)
		}
		for _, path := range paths {
			more, lines := d.read(path)
			if more == nil {
				tree = nil // but the other files' syntax is looked at
			}
			if tree != nil {
				d.merge(tree, more, lines)
			}
		}
	}
	return tree
}

// merge adds the tree of the file read last. The tables at the top may be
// spread over files; what they hold is set once.
func (d *decoder) merge(tree, more map[string]any, lines map[string]int) {
	// Not errorf: it would show the file that set the key first.
	refuse := func(at, text string) {
		file := len(d.files) - 1
		d.errs = append(d.errs, Error{File: d.files[file], Line: lines[at], Key: at, Text: text, file: file})
	}
	twice := func(at string) { refuse(at, "is set already, at "+d.show(d.where[at])) }
	for name, v := range more {
		old, ok := tree[name]
		to, isTable := old.(map[string]any)
		from, areTables := v.(map[string]any)
		switch {
		case name == "include":
			refuse(name, "is for the main file alone")
		case !ok:
			tree[name] = v
		case !isTable || !areTables:
			twice(join("", name))
		default:
			for key, v := range from {
				if _, ok := to[key]; ok {
					twice(join(join("", name), key))
				} else {
					to[key] = v
				}
			}
		}
	}
}

// readRegular reads a regular file of at most limit bytes: a FIFO or device
// would block or never end. Errors do not repeat the path.
func readRegular(path string, limit int64) ([]byte, error) {
	fi, err := os.Stat(path)
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("is no regular file")
	}
	if err != nil {
		return nil, bareError(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, bareError(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errors.New("is larger than " + text(Size(limit)))
	}
	return data, bareError(err)
}

// bareError is an error without the operation and the path that package os
// puts before it.
func bareError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
