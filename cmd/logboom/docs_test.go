package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"logboom/sink"
)

// The documents are held against the program: what they name exists, and what
// exists they name. A change of either fails here until both agree.

const manual = "../../docs/manual.md"

// fence matches a fenced block of code: its language, its text.
var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// documents are README.md and docs/*.md by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(paths) < 3 {
		t.Fatalf("documents %v, error %v", paths, err)
	}
	docs := make(map[string]string)
	for _, path := range append(paths, "../../README.md") {
		docs[path] = string(readFile(t, path))
	}
	return docs
}

// blocksOf are all blocks of code in one language, by file:line.
func blocksOf(t *testing.T, lang string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for path, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
			if text[m[2]:m[3]] == lang {
				where := fmt.Sprintf("%s:%d", filepath.Base(path), strings.Count(text[:m[4]], "\n")+1)
				found[where] = text[m[4]:m[5]]
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no block of %s in any document", lang)
	}
	return found
}

// Each block of TOML is a whole config: nothing is added to it here.
func TestDocsConfigs(t *testing.T) {
	noSystemd(t)
	for where, text := range blocksOf(t, "toml") {
		if _, err := Load(write(t, "conf.toml", text)); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

// PI04, PI21: Octane's recipes start the server itself, log to standard error,
// and say that the workers' standard output is not for logs.
func TestDocsOctane(t *testing.T) {
	noSystemd(t)
	servers := 0
	for where, text := range blocksOf(t, "toml") {
		if !strings.Contains(text, "[program.octane]") {
			continue
		}
		servers++
		p := load(t, text).Programs[0]
		if slices.Contains(p.Command, "artisan") || p.Environment["LOG_CHANNEL"] != "stderr" || len(p.Stderr) == 0 {
			t.Errorf("%s: %+v", where, p)
		}
	}
	recipes := string(readFile(t, "../../docs/recipes.md"))
	if servers != 3 || !strings.Contains(recipes, "Standard output of RoadRunner's workers is the protocol") {
		t.Errorf("%d servers, or no word about standard output", servers)
	}
}

// Each block for nginx is accepted by nginx, within http. The format "main" is
// defined where a block uses it and does not define it; paths of the system
// lie below a folder of the test, and names of hosts are not looked up.
func TestDocsNginx(t *testing.T) {
	need(t, "nginx")
	for where, text := range blocksOf(t, "nginx") {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "run/logboom"), 0o755); err != nil {
			t.Fatal(err)
		}
		text = fill(text, "unix:/run/", "unix:"+dir+"/run/", " /run/", " "+dir+"/run/", "server=logboom:", "server=127.0.0.1:")
		if strings.Contains(text, " main") && !strings.Contains(text, "log_format main") {
			text = "log_format main '$remote_addr';\n" + text
		}
		conf := fmt.Sprintf("pid %[1]s/pid;\nerror_log %[1]s/error.log;\nevents {}\nhttp {\n", dir)
		for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			conf += fmt.Sprintf("%s_temp_path %s/%s;\n", module, dir, module)
		}
		path := write(t, "nginx.conf", conf+text+"}\n")
		out, err := exec.Command("nginx", "-t", "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", path).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", where, err, out)
		}
	}
}

// Each block for rsyslog is accepted by rsyslogd as a whole config.
func TestDocsRsyslog(t *testing.T) {
	need(t, "rsyslogd")
	for where, text := range blocksOf(t, "rsyslog") {
		out, err := exec.Command("rsyslogd", "-N1", "-f", write(t, "rsyslog.conf", text)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", where, err, out)
		}
	}
}

// documented is a heading of the manual whose table lists keys of a section:
// those of the struct but for what it shares with others.
type documented struct {
	heading string
	section any // with the defaults
	shared  []any
}

// documentedSections fills in what a config has that says no more than it must.
func documentedSections(t *testing.T) []documented {
	t.Helper()
	cfg := load(t, `
		source.in    = { type = "syslog", listen = "udp://127.0.0.1:5140", sinks = ["file", "remote"] }
		source.fifo  = { type = "fifo", path = "f", sinks = ["file"] }
		source.stdin = { type = "stdin", sinks = ["file"] }
		program.app  = { command = "app", sinks = ["file"] }
		sink.file    = { type = "file", path = "x.gz" }
		sink.remote  = { type = "syslog", targets = ["tcp://127.0.0.1:514"] }`)
	fifo, file := &cfg.FIFOs[0], &cfg.Files[0]
	return []documented{
		{heading: "Top of the file", section: cfg},
		{heading: "[log]", section: &cfg.Log},
		{heading: "[memory]", section: &cfg.Memory},
		{heading: "[http]", section: &cfg.HTTP},
		{heading: "[batch]", section: &cfg.Batch},
		{heading: "Every source", section: &fifo.Input},
		{heading: "[source.NAME] of type syslog", section: &cfg.Syslog[0], shared: []any{&Input{}}},
		{heading: "[source.NAME] of type fifo", section: fifo, shared: []any{&Input{}, &Lines{}}},
		{heading: "[source.NAME] of type stdin", section: &cfg.Stdin[0], shared: []any{&Input{}, &Lines{}}},
		{heading: "Lines of FIFOs, standard input and programs", section: &fifo.Lines},
		{heading: "[program.NAME]", section: &cfg.Programs[0], shared: []any{&Lines{}}},
		{heading: "Every sink", section: &file.Output},
		{heading: "How a file, stdout or stderr sink writes", section: &file.Text},
		{heading: "[sink.NAME] of type file", section: file, shared: []any{&Output{}, &Text{}}},
		{heading: "[sink.NAME] of type syslog", section: &cfg.Forwards[0], shared: []any{&Output{}}},
	}
}

// settingsOf lists the keys of a section, a pointer to a struct, those of
// tables within it with dots. The top's tables are sections of their own.
func settingsOf(section any) map[string]field {
	keys := make(map[string]field)
	var add func(prefix string, v reflect.Value)
	add = func(prefix string, v reflect.Value) {
		known, _ := fields(v)
		for _, f := range known {
			if f.value.Kind() != reflect.Struct || isScalar(f.value.Type()) {
				keys[prefix+f.name] = f
			} else if _, top := section.(*Config); !top {
				add(prefix+f.name+".", f.value)
			}
		}
	}
	add("", reflect.ValueOf(section).Elem())
	return keys
}

// rowsUnder are the cells of each row of the tables below a heading, up to the
// next one.
func rowsUnder(t *testing.T, text, heading string) [][]string {
	t.Helper()
	_, text, found := strings.Cut(text, "\n### "+heading+"\n")
	if !found {
		t.Fatalf("no heading %q", heading)
	}
	if end := strings.Index(text, "\n##"); end >= 0 {
		text = text[:end]
	}
	var rows [][]string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		line = strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |\n")
		rows = append(rows, strings.Split(line, " | "))
	}
	return rows
}

// CF08: the manual names every key that the decoder knows, and no other, with
// its default, its bounds and the words that it takes.
func TestDocsKeys(t *testing.T) {
	noSystemd(t)
	text := string(readFile(t, manual))
	for _, doc := range documentedSections(t) {
		t.Run(doc.heading, func(t *testing.T) {
			keys := settingsOf(doc.section)
			for _, shared := range doc.shared {
				for key := range settingsOf(shared) {
					delete(keys, key)
				}
			}
			if _, top := doc.section.(*Config); top {
				keys["include"] = field{name: "include"}
			}
			for _, row := range rowsUnder(t, text, doc.heading) {
				name := strings.Trim(row[0], "`")
				f, known := keys[name]
				if !known {
					t.Errorf("the decoder does not know %s here", name)
					continue
				}
				delete(keys, name)
				if f.value.IsValid() {
					checkRow(t, &f, row)
				}
			}
			for key := range keys {
				t.Errorf("%s is not in the manual", key)
			}
		})
	}
}

// checkRow holds a row against its field. A default in code font is what the
// config prints; one in words says on what it depends.
func checkRow(t *testing.T, f *field, row []string) {
	t.Helper()
	if len(row) != 3 {
		t.Errorf("%d cells: %q", len(row), row)
		return
	}
	wants := "none of its own"
	if f.printed() {
		wants = "`" + string(appendValue(nil, f)) + "`"
	}
	switch said := row[1]; {
	case f.has("required") != (said == "required") && f.name != "sinks": // of a program, or stdout and stderr
		t.Errorf("%s: required: %q", f.name, said)
	case strings.HasPrefix(said, "`") && said != wants && !(f.has("auto") && said == "`\"auto\"`"):
		t.Errorf("%s: the default is %s, not %s", f.name, wants, said)
	}
	for _, word := range f.allowed() {
		if !strings.Contains(row[2]+row[1], word) {
			t.Errorf("%s: %q is not said: %q", f.name, word, row[2])
		}
	}
	for _, bound := range []string{"min", "max"} {
		// One that keeps a number from being negative goes without saying.
		if limit := f.tag.Get(bound); limit != "" && limit != "0" && !strings.Contains(row[2], limit) {
			t.Errorf("%s: %s of %s is not said: %q", f.name, bound, limit, row[2])
		}
	}
}

// metricsOf are the metrics in the code, with their labels: logboom_x{a,b}.
func metricsOf(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{"logboom_write_seconds{sink}": true} // a histogram, one for each outlet
	code := string(readFile(t, "metrics.go"))
	for _, m := range regexp.MustCompile(`metric\("(\w+)", "[^"]*"((?:, "\w+")*)\)`).FindAllStringSubmatch(code, -1) {
		name := "logboom_" + m[1]
		if labels := strings.ReplaceAll(strings.TrimPrefix(m[2], ", "), `"`, ""); labels != "" {
			name += "{" + strings.ReplaceAll(labels, " ", "") + "}"
		}
		found[name] = true
	}
	if len(found) < 20 {
		t.Fatalf("only %v", found)
	}
	return found
}

// The manual lists all metrics, each with its labels, and the documents name
// no other; a running daemon gives out none that is not listed.
func TestDocsMetrics(t *testing.T) {
	real := metricsOf(t)
	text := string(readFile(t, manual))
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(logboom_[^`]+)`").FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(real)); !slices.Equal(got, want) {
		t.Errorf("the manual lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	names := make(map[string]bool)
	for m := range real {
		name, _, _ := strings.Cut(m, "{")
		names[name] = true
	}
	for path, text := range documents(t) {
		for _, name := range regexp.MustCompile(`logboom_[a-z_]+`).FindAllString(text, -1) {
			if !names[name] {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
	d := startDaemon(t, prelude+"[source.in]\ntype = 'fifo'\npath = 'in'\nsinks = ['out']\n[sink.out]\ntype = 'file'\npath = 'out'\n")
	families := regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(string(d.ask("/metrics")), -1)
	if len(families) < 15 {
		t.Errorf("only %d families of metrics", len(families))
	}
	for _, m := range families {
		if !names[m[1]] {
			t.Errorf("a running daemon has %s", m[1])
		}
	}
	d.stop()
}

// invocation matches a command line of ours in code: the command, and what
// follows up to a comment, another command or the end.
var invocation = regexp.MustCompile("(?:^|[\\s/`\"])logboom +([a-z][a-z-]*)([^`\n#|]*)")

// Every command and flag that the documents show exists, and the manual shows
// every one that exists.
func TestDocsCommands(t *testing.T) {
	commands := make(map[string]*cobra.Command)
	root := rootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		commands[c.Name()] = c
	}
	seen := 0
	for path, text := range documents(t) {
		for _, code := range codeOf(text) {
			for _, m := range invocation.FindAllStringSubmatch(code, -1) {
				seen++
				c := commands[m[1]]
				if c == nil {
					t.Errorf("%s: there is no command %q: %q", path, m[1], m[0])
					continue
				}
				ours, _, _ := strings.Cut(m[2], " -- ") // what follows is another program's
				for _, flag := range regexp.MustCompile(`(?:^|\s)--([a-z-]+)`).FindAllStringSubmatch(ours, -1) {
					if c.Flags().Lookup(flag[1]) == nil && flag[1] != "help" {
						t.Errorf("%s: %s has no flag --%s: %q", path, m[1], flag[1], m[0])
					}
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d command lines were found", seen)
	}
	text := string(readFile(t, manual))
	for name, c := range commands {
		if !strings.Contains(text, "`logboom "+name) {
			t.Errorf("the manual does not show the command %s", name)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			row, line, short := "\n| `--"+f.Name+"`", "`logboom "+name+" --"+f.Name, "(`--"+f.Name+"`)"
			if f.Name != "help" && !strings.Contains(text, row) && !strings.Contains(text, line) && !strings.Contains(text, short) {
				t.Errorf("the manual does not show %s --%s", name, f.Name)
			}
		})
	}
}

// codeOf are the spans of code of a document, and its blocks for a shell or a
// unit of systemd.
func codeOf(text string) []string {
	var code []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == "sh" || m[1] == "ini" || m[1] == "apache" {
			code = append(code, strings.Split(m[2], "\n")...)
		}
	}
	text = fence.ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(text, -1) {
		// In a table the bar of a pipe is escaped; each side is a command.
		code = append(code, strings.Split(strings.ReplaceAll(strings.ReplaceAll(m[1], "\n", " "), `\|`, "|"), "|")...)
	}
	return code
}

// The manual names every field of status --json.
func TestDocsStatusFields(t *testing.T) {
	rows := rowsUnder(t, string(readFile(t, manual)), "status --json")
	for i, section := range []any{sourceStatus{}, edgeStatus{}, sinkStatus{}, programStatus{}} {
		var want, got []string
		for f := range reflect.TypeOf(section).Fields() {
			if tag := f.Tag.Get("json"); tag != "" {
				want = append(want, tag)
			}
		}
		cell := regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(rows[i][1], "") // what they may hold
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", rows[i][0], got, want)
		}
	}
}

// The variables and marks of section 6 work, and the messages of section 12
// are in the code.
func TestDocsWords(t *testing.T) {
	text := string(readFile(t, manual))
	part := func(from, to string) string {
		_, rest, _ := strings.Cut(text, "\n## "+from)
		part, _, found := strings.Cut(rest, "\n## "+to)
		if !found {
			t.Fatalf("no sections %s and %s", from, to)
		}
		return part
	}
	variables := regexp.MustCompile("`(\\$[a-z]+|\\$[1-9]|\\$\\{json[^}]*\\})`").FindAllStringSubmatch(part("6. ", "7. "), -1)
	marks := regexp.MustCompile(`%[A-Za-z]`).FindAllString(part("6. ", "7. "), -1)
	if len(variables) < 15 || len(marks) < 20 {
		t.Fatalf("%d variables, %d marks", len(variables), len(marks))
	}
	for _, v := range variables {
		if _, err := sink.ParseTemplate(v[1]); err != nil && v[1] != "$name" {
			t.Error(err)
		}
	}
	for _, mark := range marks {
		if _, err := sink.ParsePath("/x" + mark); err != nil {
			t.Error(err)
		}
	}
	code := sources(t)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(part("12. ", "13. "), -1) {
		if !strings.Contains(code, strings.TrimSuffix(m[1], "…")) {
			t.Errorf("nothing logs %q", m[1])
		}
	}
}

// sources is the code that writes to the daemon's own log.
func sources(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	for _, folder := range []string{".", "../../sink", "../../syslog", "../../proc"} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil || files == nil {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				code.Write(readFile(t, file))
			}
		}
	}
	return code.String()
}

// The README's first minute: its commands as they stand, but for the ports,
// which others may use, and the build, which is done.
func TestDocsOneMinute(t *testing.T) {
	need(t, "logger", "zcat")
	readme := string(readFile(t, "../../README.md"))
	_, minute, _ := strings.Cut(readme, "## One minute")
	minute, _, _ = strings.Cut(minute, "\n## ")
	blocks := fence.FindAllStringSubmatch(minute, -1)
	if len(blocks) != 2 || !strings.HasPrefix(blocks[0][2], "make run") {
		t.Fatalf("other commands than this test knows: %q", blocks)
	}
	port := fmt.Sprint(freePort(t, "udp"))
	dir := t.TempDir()
	configure(t, dir, fill(readShipped(t), "127.0.0.1:5140", "127.0.0.1:"+port, `#address = "127.0.0.1:9514"`, `address = ""`))
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(logboom(t), filepath.Join(dir, "bin/logboom")); err != nil {
		t.Fatal(err)
	}
	d := runDaemon(t, dir)
	script := strings.ReplaceAll(blocks[1][2], "-P 5140", "-P "+port)
	_, other, _ := strings.Cut(script, "# or: ") // the other way to send
	other, _, _ = strings.Cut(other, "\n")
	code, stdout, stderr := shell(t, dir, other+"\n"+script)
	if code != 0 || strings.Count(stdout, "GET / 200\n") != 2 || !strings.Contains(stdout, "balanced: true") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	d.stop()
}
