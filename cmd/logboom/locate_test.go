package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestLocate(t *testing.T) {
	tests := []struct {
		name, text string
		want       map[string]int
	}{
		{"nothing", "", map[string]int{}},
		{"comments", "# a = 1\n\n  # b\r\n", map[string]int{}},
		{"pairs", "a = 1\nb=2 # c = 3\n\n\td\t=\t4", map[string]int{"a": 1, "b": 2, "d": 4}},
		{"windows", "a = 1\r\nb = 2\r\n", map[string]int{"a": 1, "b": 2}},
		{"tables", "a = 1\n[b]\nc = 2\n[b.d]\ne = 3\n[ f . g ]\nh = 4\n", map[string]int{
			"a": 1, "b": 2, "b.c": 3, "b.d": 4, "b.d.e": 5, "f": 6, "f.g": 6, "f.g.h": 7}},
		{"a table after its part", "[a.b]\nc = 1\n[a]\nd = 2\n", map[string]int{"a": 1, "a.b": 1, "a.b.c": 2, "a.d": 4}},
		{"arrays of tables", "[[a]]\nb = 1\n[[a]]\nc = 2\n", map[string]int{"a": 1, "a.b": 2, "a.c": 4}},
		{"dotted", "a.b . c = 1\na.d = 2\n[e]\nf.g = 3\n", map[string]int{"a": 1, "a.b": 1, "a.b.c": 1, "a.d": 2, "e": 3, "e.f": 4, "e.f.g": 4}},
		{"quoted", "\"a\" = 1\n'b c' = 2\n\"d.e\".f = 3\n[\"g\\u0020h\"]\n\"=]#\" = 4\n\"\" = 5\n", map[string]int{
			"a": 1, `"b c"`: 2, `"d.e"`: 3, `"d.e".f`: 3, `"g h"`: 4, `"g h"."=]#"`: 5, `"g h".""`: 6}},
		{"strings", `a = "x = 1 # \" [y]"` + "\nb = 'z = \"2'\nc = 3\n", map[string]int{"a": 1, "b": 2, "c": 3}},
		{"long strings", "a = \"\"\"\nx = 1\n[y] \"\" \\\"\"\"\"\nb = '''\nz = '' ''''\nc = \"\"\nd = 1\n", map[string]int{"a": 1, "b": 4, "c": 6, "d": 7}},
		{"lists", "a = [1, [2, 3],\n  # x = 1\n  \"]\", # ]\n  '''\n]''',\n]\nb = []\nc = 1", map[string]int{
			"a": 1, "a[0]": 1, "a[1]": 1, "a[1][0]": 1, "a[1][1]": 1, "a[2]": 3, "a[3]": 4, "b": 7, "c": 8}},
		{"inline tables", "a = { b = 1, c.d = 'x}', e = { f = [ { g = 2 } ] } }\nh = {}\ni = 1", map[string]int{
			"a": 1, "a.b": 1, "a.c": 1, "a.c.d": 1, "a.e": 1, "a.e.f": 1, "a.e.f[0]": 1, "a.e.f[0].g": 1, "h": 2, "i": 3}},
		{"inline tables over lines", "a = {\n  b = 1, # c\n  d = 2,\n}\ne = 3", map[string]int{"a": 1, "a.b": 2, "a.d": 3, "e": 5}},
		{"values", "a = 1979-05-27 07:32:00Z\nb = [ 1.5, inf,true]\nc = 0x1F\n", map[string]int{
			"a": 1, "b": 2, "b[0]": 2, "b[1]": 2, "b[2]": 2, "c": 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var tree map[string]any
			if _, err := toml.Decode(tt.text, &tree); err != nil {
				t.Fatalf("the test's text is no TOML: %v", err)
			}
			if got := locate(tt.text); !maps.Equal(got, tt.want) {
				t.Errorf("of\n%s\ngot  %v\nwant %v", tt.text, got, tt.want)
			}
		})
	}
}

// A hostile nest of lists costs no more than a multiple of its text.
func TestLocateDeep(t *testing.T) {
	const depth = 20000
	lines := locate("a = " + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "\nb = 1")
	size := 0
	for at := range lines {
		size += len(at)
	}
	if lines["b"] != 2 || size > 1<<20 {
		t.Errorf("b at line %d, %d bytes of keys", lines["b"], size)
	}
}

// The scanner ends on any text, and finds every key of one that is TOML.
func FuzzLocate(f *testing.F) {
	f.Add("a.b = [ { c = 1 }, ]\n[d.'e f']\n\"g\" = '''\n'''")
	f.Add("[[a]]\nb = \"\"\"\\\"\"\"\"\"\nc = { d.e = 1 }\n")
	f.Add("a = [1,2")
	f.Add("=]}\"'")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		lines := locate(text)
		var tree map[string]any
		md, err := toml.Decode(text, &tree)
		if err != nil {
			return
		}
		last := strings.Count(text, "\n") + 1
		for _, key := range md.Keys() {
			at := ""
			for _, name := range key {
				at = join(at, name)
			}
			if line := lines[at]; inList(tree, key) {
				continue // its place has an index
			} else if line < 1 || line > last {
				t.Errorf("key %s at line %d of %d in %q", at, line, last, text)
			}
		}
	})
}

// inList reports whether a key leads through a list.
func inList(tree map[string]any, key toml.Key) bool {
	var v any = tree
	for _, name := range key {
		t, ok := v.(map[string]any)
		if !ok {
			return true
		}
		v = t[name]
	}
	return false
}
