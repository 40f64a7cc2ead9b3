package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder makes files in a fresh folder, goes there, and takes away what the
// machine that tests run on may have set.
func folder(t *testing.T, files map[string]string) {
	t.Helper()
	noSystemd(t)
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpand(t *testing.T) {
	t.Setenv("LOGBOOM_TEST", "a$host %Y")
	folder(t, map[string]string{"secret": "s3cret$$\n", "crlf": "x\r\n", "dir/conf.toml": ""})
	d := &decoder{base: "."}
	tests := []struct{ in, want, path, line string }{
		{"plain", "plain", "plain", "plain"},
		{"", "", "", ""},
		{"$$", "$", "$$", "$$"},
		{"$$$", "$$", "$$$", "$$$"},
		{"$host ${host:-x} $1 $", "$host ${host:-x} $1 $", "$host ${host:-x} $1 $", "$host ${host:-x} $1 $"},
		{"^x$", "^x$", "^x$", "^x$"},
		{"$${env:NONE}", "${env:NONE}", "$${env:NONE}", "$${env:NONE}"},
		// What is inserted is text, whatever it holds.
		{"<${env:LOGBOOM_TEST}>", "<a$host %Y>", "<a$$host %%Y>", "<a$$host %Y>"},
		{"${file:secret}${file:crlf}", "s3cret$$x", "s3cret$$$$x", "s3cret$$$$x"},
	}
	for _, tt := range tests {
		for at, want := range map[string]string{
			"source.x.path": tt.want, "sink.x.path": tt.path, "sink.x.template": tt.line, "sink.path.match.message": tt.want,
		} {
			if got := d.expand(at, tt.in); got != want {
				t.Errorf("%s = %q is %q, want %q", at, tt.in, got, want)
			}
		}
	}
}

func TestExpandErrors(t *testing.T) {
	folder(t, map[string]string{"huge": strings.Repeat("x", maxSecret+1)})
	for in, want := range map[string]string{
		"${env:LOGBOOM_NOT_SET}": `environment variable "LOGBOOM_NOT_SET" is not set`,
		"a ${env:X":              `"${env:X" has no closing brace`,
		"${file:none}":           `file "none": no such file or directory`,
		"${file:.}":              `file ".": is no regular file`,
		"${file:/dev/zero}":      `file "/dev/zero": is no regular file`,
		"${file:huge}":           `file "huge": is larger than 64KiB`,
	} {
		d := &decoder{base: ".", files: []string{"conf.toml"}}
		if got := d.expand("log.level", in); got != (failed{}) || len(d.errs) != 1 || d.errs[0].Text != want {
			t.Errorf("%q is %v, errors %v, want %q", in, got, d.errs, want)
		}
	}
}

// A value that is an environment variable, everywhere in the tree; one that
// could not be expanded is complained about once.
func TestExpandTree(t *testing.T) {
	folder(t, nil)
	t.Setenv("LOGBOOM_TEST", "out")
	cfg := load(t, `
		[source.in]
		type = "stdin"
		sinks = ["${env:LOGBOOM_TEST}"]
		[program.app]
		command = "echo ${env:LOGBOOM_TEST} $HOME"
		environment = { A = "${env:LOGBOOM_TEST}$$" }
		sinks = ["out"]
		[sink]
		out = { type = "stdout", match = { program = ["x", "${env:LOGBOOM_TEST}"] } }`)
	p := cfg.Programs[0]
	if strings.Join(p.Command, "|") != "echo|out|$HOME" || p.Environment["A"] != "out$" || cfg.Streams[0].Match.Program[1] != "out" {
		t.Errorf("got %q, %q, %q", p.Command, p.Environment, cfg.Streams[0].Match.Program)
	}
}

func TestInclude(t *testing.T) {
	t.Setenv("LOGBOOM_TEST", "conf.d")
	folder(t, map[string]string{
		"etc/conf.toml":     "include = [\"${env:LOGBOOM_TEST}/*.toml\", \"one.toml\", \"none/*.toml\"]\n[batch]\nflush = \"2s\"\n[sink.out]\ntype = \"file\"\npath = \"a.log\"",
		"etc/conf.d/b.toml": "[source.b]\ntype = \"fifo\"\npath = \"b.fifo\"\nsinks = [\"out\"]",
		"etc/conf.d/a.toml": "[source.a]\ntype = \"stdin\"\nsinks = [\"out\"]\n[batch]\nmessages = 7",
		"etc/conf.d/c.tom":  "not a config",
		"etc/one.toml":      "[program.one]\ncommand = \"x\"\nsinks = [\"out\"]",
	})
	cfg, err := Load("etc/conf.toml")
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Stdin) != 1 || len(cfg.FIFOs) != 1 || len(cfg.Programs) != 1 || cfg.Batch.Messages != 7 || cfg.Batch.Flush.Seconds() != 2 {
		t.Errorf("got %+v", cfg)
	}
	// A relative path starts at the main file's folder, wherever it is written.
	if wd, _ := os.Getwd(); cfg.FIFOs[0].Path != filepath.Join(wd, "etc/b.fifo") {
		t.Errorf("the path in the included file is %q", cfg.FIFOs[0].Path)
	}
}

func TestIncludeErrors(t *testing.T) {
	main := "include = [\"*.inc\"]\n" + minimal
	tests := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"an error in each file", map[string]string{
			"conf.toml": main + "level = 3\n", "a.inc": "[batch]\n\nflush = 1", "b.inc": "[log]\nlevel = \"x\""},
			"conf.toml:8: sink.out.level: unknown key here: it belongs to [log], a sink of type file\n" +
				"a.inc:3: batch.flush: must be a time with a unit, as in \"1s\", not 1\n" +
				"b.inc:2: log.level: \"x\" is none of debug, info, warn, error"},
		{"set twice", map[string]string{
			"conf.toml": main + "[batch]\nflush = \"1s\"", "a.inc": "[batch]\nflush = \"1s\"\n[source.in]\ntype = \"stdin\"", "b.inc": "stop_timeout = \"1s\"", "c.inc": "stop_timeout = \"1s\""},
			"a.inc:2: batch.flush: is set already, at conf.toml:9\n" +
				"a.inc:3: source.in: is set already, at conf.toml:3\n" +
				"c.inc:1: stop_timeout: is set already, at b.inc:1"},
		{"syntax of each file", map[string]string{"conf.toml": main, "a.inc": "a = ", "b.inc": "[b\n"},
			"a.inc:1: a: unexpected EOF; expected value\n" +
				"b.inc:2: expected '.' or ']' to end table name, but got '\\n' instead"},
		{"no file", map[string]string{"conf.toml": "include = [\n \"a.inc\", \"[\"]\n" + minimal},
			"conf.toml:2: include[0]: \"a.inc\" names no file\n" +
				"conf.toml:2: include[1]: \"[\" names no file"},
		{"no file to read", map[string]string{"conf.toml": main, "a.inc/x": ""}, "a.inc: is no regular file"},
		{"includes do not nest", map[string]string{"conf.toml": main, "a.inc": "include = [\"b\"]"},
			"a.inc:1: include: is for the main file alone"},
		{"names of one set", map[string]string{"conf.toml": main, "a.inc": "[program.in]\ncommand = \"x\"\nsinks = [\"out\"]"},
			"a.inc:1: program.in: the name \"in\" is taken by source.in, at conf.toml:3"},
		{"not even a main file", nil, "conf.toml: no such file or directory"},
		{"too large", map[string]string{"conf.toml": strings.Repeat("#", maxConfig+1)}, "conf.toml: is larger than 1MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			folder(t, tt.files)
			if _, err := Load("conf.toml"); err == nil || err.Error() != tt.want {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
		})
	}
}

// An included FIFO would block for ever, a device never end.
func TestLoadIrregular(t *testing.T) {
	for _, path := range []string{"/dev/zero", "/dev/null", t.TempDir()} {
		if _, err := Load(path); err == nil || err.Error() != path+": is no regular file" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzConfig holds any text to this: Load ends, gives a Config or errors that
// name lines of the text, and what is printed of a Config is read as the same.
func FuzzConfig(f *testing.F) {
	for _, pattern := range []string{"testdata/config/bad/*.toml", "../../conf.toml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || files == nil {
			f.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
			f.Add([]byte(uncommented(string(data))))
		}
	}
	noSystemd(f)
	path := write(f, "conf.toml", "")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(path)
		if err == nil {
			checkPrint(t, cfg)
			return
		}
		errs, _ := err.(Errors)
		if len(errs) == 0 || cfg != nil {
			t.Errorf("config %v, error %T %v", cfg, err, err)
		}
		last := strings.Count(string(data), "\n") + 1
		for _, e := range errs {
			if e.File == path && (e.Line < 0 || e.Line > last) || e.Text == "" {
				t.Errorf("of %d lines: %v", last, e)
			}
		}
	})
}
