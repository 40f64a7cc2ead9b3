package proc

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// splits are accepted commands; a shell agrees with each of them.
var splits = []struct {
	in   string
	want []string
}{
	{"", nil},
	{" \t\n ", nil},
	{"php artisan octane:start", []string{"php", "artisan", "octane:start"}},
	{"  a\t b\nc ", []string{"a", "b", "c"}},
	{"a  \t\\\n b", []string{"a", "b"}},
	{`a 'b c' "d e"`, []string{"a", "b c", "d e"}},
	{`a'b'"c"d`, []string{"abcd"}},
	{`'' "" a`, []string{"", "", "a"}},
	{`a\ b \' \" \\`, []string{"a b", "'", `"`, `\`}},
	{`'a\b' "a\b" "a\"b" "a\\b" "\$HOME" "\` + "`" + `"`, []string{`a\b`, `a\b`, `a"b`, `a\b`, "$HOME", "`"}},
	{`"it's" 'say "x"'`, []string{"it's", `say "x"`}},
	{"a\\\nb \"c\\\nd\" \\\n e", []string{"ab", "cd", "e"}},
	{"'a\nb'", []string{"a\nb"}},
	{"größe 'ñ' \xff", []string{"größe", "ñ", "\xff"}},
}

func TestSplitCommand(t *testing.T) {
	for _, tt := range splits {
		got, err := SplitCommand(tt.in)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	// What a shell would expand is kept.
	in := "echo $HOME *.log a|b #c `d` ~ ${x}"
	got, err := SplitCommand(in)
	if err != nil || strings.Join(got, " ") != in {
		t.Errorf("%q: %q, %v", in, got, err)
	}
}

func TestSplitCommandLikeShell(t *testing.T) {
	for _, tt := range splits {
		if strings.Contains(tt.in, "b\nc") {
			continue // an unquoted line feed would end the shell's command
		}
		script := "set -- " + strings.TrimSpace(tt.in) + "\n[ $# -eq 0 ] || printf '%s\\0' \"$@\""
		out, err := exec.Command("sh", "-c", script).Output()
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		var want string
		for _, w := range tt.want {
			want += w + "\x00"
		}
		if string(out) != want {
			t.Errorf("%q: the shell says %q, the table %q", tt.in, out, want)
		}
	}
}

func TestSplitCommandErrors(t *testing.T) {
	for _, in := range []string{`a 'b`, `a "b`, `a "b\"`, `a b\`, `'`, `"`, `\`} {
		got, err := SplitCommand(in)
		if err == nil {
			t.Errorf("%q: %q, want an error", in, got)
			continue
		}
		if !strings.Contains(err.Error(), quoted(in)) {
			t.Errorf("%q: the error does not quote it: %v", in, err)
		}
	}
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// FuzzSplitCommand: words that are quoted come back as they were.
func FuzzSplitCommand(f *testing.F) {
	f.Add("a", "it's", `"\`)
	f.Add("", " \n", "$`")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		words := []string{a, b, c}
		var single, double, slash strings.Builder
		for _, w := range words {
			single.WriteString(" '" + strings.ReplaceAll(w, "'", `'\''`) + "'")
			double.WriteString(` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`)
			slash.WriteString(" ''")
			for i := range len(w) {
				if w[i] == '\n' { // with a backslash it would join lines
					slash.WriteString("'\n'")
				} else {
					slash.WriteString(`\` + w[i:i+1])
				}
			}
		}
		for _, s := range []string{single.String(), double.String(), slash.String()} {
			got, err := SplitCommand(s)
			if err != nil || !slices.Equal(got, words) {
				t.Errorf("%q: %q, %v; want %q", s, got, err, words)
			}
		}
		SplitCommand(a) // anything ends
	})
}
