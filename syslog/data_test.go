package syslog

import (
	"maps"
	"strings"
	"testing"
)

type elements = map[string]map[string]string

// dataOf is the structured data of a message that holds text there, and the
// message that is left.
func dataOf(text string) (elements, string) {
	var h Header
	Scan(&h, []byte("<13>1 - h a - - "+text), false)
	return h.StructuredData(), string(h.Message)
}

func TestStructuredData(t *testing.T) {
	long := strings.Repeat("n", 100)
	tests := []struct {
		in   string
		want elements
	}{
		{"-", nil},
		{"[a]", elements{"a": {}}},
		{`[a b=""]`, elements{"a": {"b": ""}}},
		{`[a b="1" c="2"][d@1.2.3 e="3"]`, elements{"a": {"b": "1", "c": "2"}, "d@1.2.3": {"e": "3"}}}, // P28
		{`[x@1 a="q\"b" b="workgroup\\user" c="e\]f"]`, // P29
			elements{"x@1": {"a": `q"b`, "b": `workgroup\user`, "c": "e]f"}}},
		{`[x@1 path="C:\new\dir"]`, elements{"x@1": {"path": `C:\new\dir`}}}, // P30
		{`[a b="\\\]\\"]`, elements{"a": {"b": `\]\`}}},
		{`[a b="[=,{} ⌘"]`, elements{"a": {"b": "[=,{} ⌘"}}},
		{"[a b=\"\t\xff\"]", elements{"a": {"b": "\t\xff"}}},
		{`[a b="1"][a c="2"]`, elements{"a": {"b": "1", "c": "2"}}},
		{`[a b="1" b="2"]`, elements{"a": {"b": "2"}}},
		{"[" + long + " " + long + `="x"]`, elements{long: {long: "x"}}},
	}
	for _, tt := range tests {
		got, message := dataOf(tt.in + " x")
		if !maps.EqualFunc(got, tt.want, maps.Equal) || (got == nil) != (tt.want == nil) || message != "x" {
			t.Errorf("%s: %v, message %q", tt.in, got, message)
		}
	}
}

// Broken data is a part of the message, all of it.
func TestBrokenData(t *testing.T) {
	for _, in := range []string{
		"[", "[]", "[ ]", "[a", "[a ", "[a ]", "[a  b=\"1\"]", `[a b="1" ]`, "[a b]", "[a b=]", "[a b=1]",
		`[a b="]`, `[a b="1"`, `[a b="1]"]`, `[a b="\"]`, `[a b= "1"]`, `[a b"="1"]`, `[a ="1"]`, `[=]`,
		`[a b="1"]x`, `[a][`, `[a][]`, "[caf\xc3\xa9]", "[a\tb]",
		`[tags@1 app_name="name with " quote"] body`, // P32
	} {
		if got, message := dataOf(in); got != nil || message != in {
			t.Errorf("%s: %v, message %q", in, got, message)
		}
	}
	h := Header{Data: []byte(`[a b="`)} // not from Scan
	if got := h.StructuredData(); got != nil {
		t.Errorf("of invalid data: %v", got)
	}
}

// FW21
func TestAppendValue(t *testing.T) {
	const value, escaped = `a"b]c\d`, `a\"b\]c\\d`
	text := AppendValue([]byte(`[x@1 v="`), []byte(value))
	if want := `[x@1 v="` + escaped; string(text) != want {
		t.Fatalf("AppendValue = %s, want %s", text, want)
	}
	got, _ := dataOf(string(text) + `"]`)
	if got["x@1"]["v"] != value {
		t.Errorf("read back as %v", got)
	}
}
