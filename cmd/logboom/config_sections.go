package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"logboom/sink"
)

var (
	sourceTypes    = []string{"syslog", "fifo", "stdin"}
	sinkTypes      = []string{"file", "syslog", "stdout", "stderr"}
	laterSinkTypes = []string{"jetstream", "victorialogs"}
)

// sectionTables are the keys at the top of a file that are no fields of
// [Config]: they are taken out of the tree before.
var sectionTables = []string{"include", "source", "program", "sink"}

// sectionKinds are all sections by how an error names them.
var sectionKinds = []struct {
	name    string
	section any
}{
	{"the top of the file", Config{}}, {"[log]", Log{}}, {"[memory]", Memory{}}, {"[http]", HTTP{}}, {"[batch]", Batch{}},
	{"a source of type syslog", SyslogSource{}}, {"a source of type fifo", FIFOSource{}}, {"a source of type stdin", StdinSource{}},
	{"a program", Program{}}, {"a sink of type file", FileSink{}}, {"a sink of type syslog", SyslogSink{}},
	{"a sink of type stdout or stderr", StreamSink{}},
}

// homesOf lists the sections that have a key.
func homesOf(key string) []string {
	var homes []string
	for _, k := range sectionKinds {
		known, _ := fields(reflect.ValueOf(k.section))
		if slices.ContainsFunc(known, func(f field) bool { return f.name == key }) {
			homes = append(homes, k.name)
		}
	}
	return homes
}

// config makes a Config of the whole tree. What it returns is of use only if
// there were no errors.
func (d *decoder) config(tree map[string]any) *Config {
	cfg := defaultConfig()
	cfg.RuntimeDir, cfg.StateDir = defaultDirs(os.Getuid(), os.Getenv)
	sources, programs, sinks := d.named(tree, "source"), d.named(tree, "program"), d.named(tree, "sink")
	// The top comes first: [batch] is the default of every sink.
	d.table("", tree, cfg)
	d.top(cfg)
	for _, s := range sources {
		d.source(cfg, s)
	}
	for _, s := range programs {
		cfg.Programs = append(cfg.Programs, d.program(s))
	}
	for _, s := range sinks {
		d.sink(cfg, s)
	}
	d.processNames(programs)
	d.references(sources, programs, sinks)
	d.conflicts(cfg)
	d.memory(cfg)
	return cfg
}

func defaultConfig() *Config {
	return &Config{
		StopTimeout: 30 * time.Second,
		Log:         Log{Level: "info", Format: "auto"},
		Memory:      Memory{Cap: 64 << 20},
		HTTP:        HTTP{Address: "127.0.0.1:9514"},
		Batch:       Batch{Messages: 10000, Buffer: 256 << 10, Flush: time.Second},
	}
}

// defaultDirs are the runtime and state directory of a config that names
// none: the system's for root, else those of the XDG Base Directory
// Specification, and where there is no session a folder of the user's own
// among the temporary files.
func defaultDirs(uid int, getenv func(string) string) (runtime, state string) {
	if uid == 0 {
		return "/run/logboom", "/var/lib/logboom"
	}
	own := filepath.Join(os.TempDir(), fmt.Sprintf("logboom-%d", uid))
	runtime, state = own, filepath.Join(own, "state")
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		runtime = filepath.Join(dir, "logboom")
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		state = filepath.Join(dir, "logboom")
	} else if home := getenv("HOME"); filepath.IsAbs(home) {
		state = filepath.Join(home, ".local", "state", "logboom")
	}
	return runtime, state
}

// systemdDir is the directory that systemd made for the unit, of those in a
// variable the first (systemd.exec(5)), or else dir.
func systemdDir(list, dir string) string {
	first, _, _ := strings.Cut(list, ":")
	return cmp.Or(first, dir)
}

// top completes the keys at the top of the file.
func (d *decoder) top(cfg *Config) {
	cfg.RuntimeDir = systemdDir(os.Getenv("RUNTIME_DIRECTORY"), cfg.RuntimeDir)
	cfg.StateDir = systemdDir(os.Getenv("STATE_DIRECTORY"), cfg.StateDir)
	if cfg.RuntimeDir == "" {
		d.errorf("runtime_dir", "must not be empty")
	}
	if cfg.StateDir == "" {
		d.errorf("state_dir", "must not be empty")
	}
	if a := cfg.HTTP.Address; a != "" {
		if err := checkHostPort(a); err != nil {
			d.errorf("http.address", "%q: %v", a, err)
		}
	}
}

// section is one named table of the tree: source.nginx.
type section struct {
	name string
	at   string
	t    map[string]any
}

// named takes a table of named sections out of the tree and lists them in the
// order of the files.
func (d *decoder) named(tree map[string]any, kind string) []section {
	v, ok := tree[kind]
	delete(tree, kind)
	all, isTable := v.(map[string]any)
	if ok && !isTable {
		d.errorf(kind, "must be tables, as in [%s.name], not %s", kind, show(v))
	}
	var list []section
	for name, v := range all {
		at := join(kind, name)
		t, isTable := v.(map[string]any)
		switch {
		case !isTable:
			d.errorf(at, "must be a table, as in [%s.name], not %s", kind, show(v))
		case !isName(name):
			d.errorf(at, "%q is no name: want letters, digits, and - _ . after the first", name)
		default:
			list = append(list, section{name, at, t})
		}
	}
	slices.SortFunc(list, func(a, b section) int {
		p, q := d.place(a.at), d.place(b.at)
		return cmp.Or(p.file-q.file, p.line-q.line, cmp.Compare(a.name, b.name))
	})
	return list
}

// isName reports whether a name can stand in a path and a label as it is.
func isName(s string) bool {
	for i, c := range s {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return s != ""
}

// sectionType is the type of a section; "" if it has none of those known.
func (d *decoder) sectionType(s section, types, later []string) string {
	at := join(s.at, "type")
	v, ok := s.t["type"]
	typ, isString := v.(string)
	switch {
	case !ok: // without a type no other key can be judged
		d.errorf(at, "is required: %s", strings.Join(types, ", "))
	case !isString:
		if _, bad := v.(failed); !bad {
			d.errorf(at, "must be a string, not %s", show(v))
		}
	case slices.Contains(later, typ):
		d.errorf(at, "%q is not supported yet", typ)
	case !slices.Contains(types, typ):
		d.errorf(at, "%v", notOneOf(typ, types))
	default:
		return typ
	}
	return ""
}

// isAuto reports whether a key of a section is left to its default.
func (s section) isAuto(key string) bool {
	v, ok := s.t[key]
	return !ok || v == "auto"
}

// defaultLines are those of every pipe.
func defaultLines() Lines {
	return Lines{MaxLine: 1 << 20, PartialTimeout: 5 * time.Second}
}

// complete fills in what depends on other keys.
func (l *Lines) complete() {
	if l.Multiline.Start != nil && l.Multiline.Timeout == 0 {
		l.Multiline.Timeout = time.Second
	}
}

// source adds one source to cfg. A FIFO and a program share the default of
// waiting for a second: a slow compressor then loses no line, and a full disk
// does not stop the writer. Standard input belongs to a pipeline, in which the
// writer is expected to wait.
func (d *decoder) source(cfg *Config, s section) {
	switch d.sectionType(s, sourceTypes, nil) {
	case "syslog":
		cfg.Syslog = append(cfg.Syslog, d.syslogSource(s))
	case "fifo":
		src := FIFOSource{Input: Input{Name: s.name, WhenFull: WhenFull{Wait, time.Second}}, Mode: 0o622, Lines: defaultLines(), Severity: info}
		d.table(s.at, s.t, &src)
		src.complete()
		cfg.FIFOs = append(cfg.FIFOs, src)
	case "stdin":
		src := StdinSource{Input: Input{Name: s.name, WhenFull: WhenFull{Mode: Block}}, Lines: defaultLines(), Severity: info}
		d.table(s.at, s.t, &src)
		src.complete()
		cfg.Stdin = append(cfg.Stdin, src)
	}
}

// syslogSource reads a syslog source. A datagram cannot wait: what is not
// taken in is dropped by the kernel. A stream can, and its sender will.
func (d *decoder) syslogSource(s section) SyslogSource {
	src := SyslogSource{
		Input:  Input{Name: s.name},
		Format: "auto", Framing: "auto", MaxMessage: 64 << 10,
		ReceiveBuffer: 8 << 20, DrainInterval: Auto, Readers: 1,
		Timezone: time.Local, Mode: 0o666, Owner: Owner{-1, -1},
		MaxConnections: 1024, IdleTimeout: 5 * time.Minute,
	}
	d.table(s.at, s.t, &src)
	if src.Listen.Network == "" {
		return src // complained about; the rest depends on it
	}
	d.effects(s.at, s.t, &src)
	d.socketPath(join(s.at, "listen"), &src.Listen)
	if stream := src.Listen.Network == "tcp" || src.Listen.Network == "unix"; s.isAuto("when_full") && stream {
		src.WhenFull = WhenFull{Mode: Block}
	}
	return src
}

// socketPath makes the path of a unix socket absolute.
func (d *decoder) socketPath(at string, a *Address) {
	if !a.isPath() {
		return
	}
	a.Address = d.abs(a.Address)
	// sun_path of unix(7) is 108 bytes with its final NUL.
	if len(a.Address) > 107 {
		d.errorf(at, "%q is longer than the 107 bytes that the path of a socket may have", a.Address)
	}
}

// programSinks gives each stream its list of sinks. Which stream goes where
// has to be said for both.
func (d *decoder) programSinks(s section, p *Program) {
	_, both := s.t["sinks"]
	_, stdout := s.t["stdout"]
	_, stderr := s.t["stderr"]
	switch {
	case both && (stdout || stderr):
		d.errorf(join(s.at, "sinks"), "excludes stdout and stderr: set one or the others")
	case both:
		p.Stdout, p.Stderr = p.Sinks, slices.Clone(p.Sinks)
	case !stdout:
		d.errorf(join(s.at, "sinks"), "is required, or else stdout and stderr")
	case !stderr && !p.RedirectStderr:
		d.errorf(join(s.at, "stderr"), "is required with stdout; [] throws it away")
	}
	p.Sinks = nil
	if p.RedirectStderr {
		p.Stderr = nil
		if stderr {
			d.errorf(join(s.at, "stderr"), "has no effect with redirect_stderr")
		}
	}
}

// ordered complains about the two ends of a delay.
func (d *decoder) ordered(at string, low, high time.Duration) {
	if low > high {
		d.errorf(join(at, "max"), "%s is less than min, %s", text(Duration(high)), text(Duration(low)))
	}
}

// sink adds one sink to cfg.
func (d *decoder) sink(cfg *Config, s section) {
	out := Output{Name: s.name, Batch: cfg.Batch, Memory: Auto, Match: Match{Severity: SeverityRange{0, 7}}}
	switch d.sectionType(s, sinkTypes, laterSinkTypes) {
	case "file":
		cfg.Files = append(cfg.Files, d.fileSink(s, out))
	case "syslog":
		cfg.Forwards = append(cfg.Forwards, d.syslogSink(s, out))
	case "stdout", "stderr":
		sk := StreamSink{Output: out, Text: Text{Escape: "line"}}
		d.table(s.at, s.t, &sk)
		d.text(s, &sk.Text)
		d.effects(s.at, s.t, &sk)
		cfg.Streams = append(cfg.Streams, sk)
	}
}

// text completes how a sink writes its messages. Notices of gaps are for
// readers that can tell them from messages: not where messages stand alone.
func (d *decoder) text(s section, t *Text) {
	_, formatted := s.t["format"]
	switch {
	case t.Template == "":
		t.Format = cmp.Or(t.Format, "raw")
	case formatted:
		d.errorf(join(s.at, "template"), "excludes format: set one of them")
	default:
		if _, err := sink.ParseTemplate(t.Template); err != nil {
			d.errorf(join(s.at, "template"), "%v", err)
		}
	}
	if s.isAuto("gap_notice") {
		t.GapNotice = t.Template == "" && t.Format != "raw"
	}
}

// fileSink reads a file sink.
func (d *decoder) fileSink(s section, out Output) FileSink {
	sk := FileSink{
		Output: out, Level: 1, Text: Text{Escape: "line"},
		Mode: 0o640, DirMode: 0o750, Owner: Owner{-1, -1}, MaxOpen: 1000, MaxNewFiles: 500,
	}
	d.table(s.at, s.t, &sk)
	if sk.Path != "" {
		d.filePath(join(s.at, "path"), &sk)
	}
	d.text(s, &sk.Text)
	if s.isAuto("compress") {
		sk.Compress = compressionOf(sk.Path)
	}
	d.rotation(s.at, &sk)
	d.effects(s.at, s.t, &sk)
	return sk
}

// compressionOf goes by a file's name.
func compressionOf(path string) string {
	switch {
	case strings.HasSuffix(path, ".gz"):
		return "gzip"
	case strings.HasSuffix(path, ".zst"):
		return "zstd"
	}
	return "none"
}

// rotation checks how files end and what becomes of them.
func (d *decoder) rotation(at string, sk *FileSink) {
	if every := sk.Rotate.Every; every > 0 {
		if err := sink.CheckEvery(every); err != nil {
			d.errorf(join(join(at, "rotate"), "every"), "%s %v", text(Duration(every)), err)
		}
	}
	p, err := sink.ParsePath(sk.Path)
	if err != nil {
		return // complained about
	}
	if sk.Keep != (Keep{}) && sk.Rotate == (Rotate{}) && !p.Timed() {
		d.errorf(join(at, "keep"), "has no effect: without rotate, and without marks such as %%Y-%%m-%%d in the path, there is one file")
	}
	if sk.Symlink != "" && p.Varies() {
		d.errorf(join(at, "symlink"), "is for paths without variables: here there is no one newest file")
	}
}

// filePath checks the template of a file's path as it was written, so that
// errors show that, and makes it absolute. A path with variables is not
// cleaned: it is no path yet.
func (d *decoder) filePath(at string, sk *FileSink) {
	p, err := sink.ParsePath(sk.Path)
	if err != nil {
		d.errorf(at, "%v", err)
		return
	}
	if !filepath.IsAbs(sk.Path) {
		sk.Path = pathQuoter.Replace(d.base) + "/" + strings.TrimPrefix(sk.Path, "./")
	}
	if p.Fixed() {
		sk.Path = filepath.Clean(sk.Path)
	}
}

// syslogSink reads a forwarding sink. Framing's auto is lf: what every
// receiver of plain TCP understands.
func (d *decoder) syslogSink(s section, out Output) SyslogSink {
	sk := SyslogSink{
		Output: out, Format: "rfc5424", Framing: "lf", Escape: "line",
		ConnectTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, ResolveEvery: time.Minute,
		ResendWindow: 256 << 10, Retry: Retry{Min: 100 * time.Millisecond, Max: 30 * time.Second},
	}
	d.table(s.at, s.t, &sk)
	d.ordered(join(s.at, "retry"), sk.Retry.Min, sk.Retry.Max)
	at := join(s.at, "targets")
	if _, ok := s.t["targets"].([]any); ok && len(sk.Targets) == 0 {
		d.errorf(at, "must name a target")
	}
	for i := range sk.Targets {
		target := &sk.Targets[i]
		switch host, port, _ := strings.Cut(target.Address, ":"); {
		case target.Network == "unix":
			d.errorf(element(at, i), "%q: want udp, tcp or unixgram", target)
		case target.isPath():
			d.socketPath(element(at, i), target)
		case target.Network != "" && (host == "" || port == "0"):
			d.errorf(element(at, i), "%q: a target needs a host and a port", target)
		}
		if target.Network != "" && slices.Contains(sk.Targets[:i], *target) {
			d.errorf(element(at, i), "%q is there twice", target)
		}
	}
	// Which keys have an effect depends on all targets being known.
	if !slices.ContainsFunc(sk.Targets, func(a Address) bool { return a.Network == "" }) {
		d.effects(s.at, s.t, &sk)
	}
	return sk
}
