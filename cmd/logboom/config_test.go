package main

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata/config/bad")

// minimal is the smallest config that is valid.
const minimal = `
[source.in]
type = "stdin"
sinks = ["out"]
[sink.out]
type = "stdout"
`

// write writes a file into a fresh folder and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads a config that is given as text and has to be valid.
func load(t testing.TB, text string) *Config {
	t.Helper()
	cfg, err := Load(write(t, "conf.toml", text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return cfg
}

// noSystemd takes away what the machine that tests run on may have set.
func noSystemd(t testing.TB) {
	t.Setenv("RUNTIME_DIRECTORY", "")
	t.Setenv("STATE_DIRECTORY", "")
}

// Each file of testdata/config/bad has all of its errors reported in one run,
// exactly as the .want beside it says.
func TestBadConfigs(t *testing.T) {
	t.Chdir("testdata/config/bad")
	noSystemd(t)
	files, err := filepath.Glob("*.toml")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			cfg, err := Load(file)
			if err == nil || cfg != nil {
				t.Fatalf("was accepted: %+v, %v", cfg, err)
			}
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(file, ".toml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	noSystemd(t)
	cfg := load(t, `
		[source.in]
		type = "syslog"
		listen = "udp://127.0.0.1:5140"
		sinks = ["file", "remote"]
		[program.app]
		command = "php -r 'echo 1;'"
		sinks = ["file"]
		[sink.file]
		type = "file"
		path = "/var/log/x.log.gz"
		[sink.remote]
		type = "syslog"
		targets = ["tcp://127.0.0.1:514"]`)
	output := func(name, typ string) Output {
		return Output{Name: name, Type: typ, Memory: Auto, Match: Match{Severity: SeverityRange{0, 7}},
			Batch: Batch{Messages: 10000, Buffer: 256 << 10, Flush: time.Second}}
	}
	want := &Config{
		RuntimeDir: cfg.RuntimeDir, StateDir: cfg.StateDir, // TestDirectories
		StopTimeout: 30 * time.Second,
		Log:         Log{"info", "auto"},
		Memory:      Memory{64 << 20},
		HTTP:        HTTP{"127.0.0.1:9514"},
		Batch:       Batch{10000, 256 << 10, time.Second},
		Syslog: []SyslogSource{{
			Input:  Input{Name: "in", Type: "syslog", WhenFull: WhenFull{Mode: Drop}, Sinks: []string{"file", "remote"}},
			Listen: Address{"udp", "127.0.0.1:5140"}, Format: "auto", Framing: "auto", MaxMessage: 64 << 10,
			ReceiveBuffer: 8 << 20, DrainInterval: Auto, Readers: 1, Timezone: time.Local, Mode: 0o666,
			Owner: Owner{-1, -1}, MaxConnections: 1024, IdleTimeout: 5 * time.Minute,
		}},
		Programs: []Program{{
			Name: "app", Command: []string{"php", "-r", "echo 1;"}, ProcessName: "%(program_name)s", NumProcs: 1, Priority: 999,
			Autostart: true, Autorestart: "unexpected",
			ExitCodes: []int{0}, StartWait: time.Second, StartRetries: 3,
			Backoff:    Backoff{time.Second, time.Minute, time.Minute},
			StopSignal: syscall.SIGTERM, StopWait: 10 * time.Second, KillAsGroup: true,
			Lines:    Lines{MaxLine: 1 << 20, PartialTimeout: 5 * time.Second},
			Severity: StreamSeverity{info, info}, WhenFull: WhenFull{Wait, time.Second},
			Stdout: []string{"file"}, Stderr: []string{"file"},
		}},
		Files: []FileSink{{
			Output: output("file", "file"), Path: "/var/log/x.log.gz", Compress: "gzip", Level: 1,
			Text: Text{Format: "raw", Escape: "line"}, Mode: 0o640, DirMode: 0o750, Owner: Owner{-1, -1},
			MaxOpen: 1000, MaxNewFiles: 500,
		}},
		Forwards: []SyslogSink{{
			Output: output("remote", "syslog"), Targets: []Address{{"tcp", "127.0.0.1:514"}},
			Format: "rfc5424", Framing: "lf", Escape: "line", ConnectTimeout: 10 * time.Second,
			WriteTimeout: 30 * time.Second, ResolveEvery: time.Minute, ResendWindow: 256 << 10,
			Retry: Retry{100 * time.Millisecond, 30 * time.Second}, WhenFull: WhenFull{Mode: Drop},
		}},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%+v\nwant\n%+v", cfg, want)
	}
}

func TestWhenFullDefaults(t *testing.T) {
	cfg := load(t, `
		[source]
		udp    = { type = "syslog", listen = "udp://:1", sinks = ["out"] }
		dgram  = { type = "syslog", listen = "/run/a", sinks = ["out"] }
		tcp    = { type = "syslog", listen = "tcp://:1", sinks = ["out"] }
		stream = { type = "syslog", listen = "unix:///run/b", sinks = ["out"] }
		told   = { type = "syslog", listen = "tcp://:2", sinks = ["out"], when_full = "drop" }
		fifo   = { type = "fifo", path = "/run/c", sinks = ["out"] }
		stdin  = { type = "stdin", sinks = ["out"] }
		[sink.out]
		type = "stdout"`)
	got := map[string]WhenFull{cfg.FIFOs[0].Name: cfg.FIFOs[0].WhenFull, cfg.Stdin[0].Name: cfg.Stdin[0].WhenFull}
	for _, s := range cfg.Syslog {
		got[s.Name] = s.WhenFull
	}
	want := map[string]WhenFull{
		"udp": {Mode: Drop}, "dgram": {Mode: Drop}, "tcp": {Mode: Block}, "stream": {Mode: Block},
		"told": {Mode: Drop}, "fifo": {Wait, time.Second}, "stdin": {Mode: Block},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What is set in a section counts there, and what [batch] sets everywhere else.
func TestSettings(t *testing.T) {
	cfg := load(t, `
		[batch]
		flush = "5s"
		[source.in]
		type = "syslog"
		listen = "unixgram://run/in.sock"
		drain_interval = "0"
		timezone = "Europe/Berlin"
		mode = "0600"
		owner = "root"
		group = 0
		sinks = ["raw", "json", "line"]
		[source.tcp]
		type = "syslog"
		listen = "tcp://[::1]:0"
		allow = ["::1", "10.1.2.3/8"]
		sinks = ["raw"]
		[program.app]
		command = ["x", ""]
		directory = "srv"
		startsecs = 90
		stopsignal = "sigquit"
		autorestart = true
		severity = { stderr = "error" }
		redirect_stderr = true
		stdout = ["raw"]
		[program.quiet]
		command = "x"
		stdout = ["raw"]
		stderr = []
		[sink.raw]
		type = "file"
		path = "log/$host/a.log"
		flush = "1m"
		match = { severity = "err", program = ["a"], message = "^x$" }
		[sink.json]
		type = "file"
		path = "./log/../b.log"
		format = "json"
		[sink.line]
		type = "stdout"
		template = "$$ $message"
		gap_notice = true`)
	in, tcp, app, quiet := cfg.Syslog[0], cfg.Syslog[1], cfg.Programs[0], cfg.Programs[1]
	raw, json, line := cfg.Files[0], cfg.Files[1], cfg.Streams[0]
	base := filepath.Dir(strings.TrimSuffix(in.Listen.Address, "/in.sock"))
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"in.listen", in.Listen, Address{"unixgram", base + "/run/in.sock"}},
		{"in.drain_interval", in.DrainInterval, time.Duration(0)},
		{"in.timezone", in.Timezone.String(), "Europe/Berlin"},
		{"in.mode", in.Mode, os.FileMode(0o600)},
		{"in.owner", in.Owner, Owner{0, 0}},
		{"tcp.allow", tcp.Allow, []netip.Prefix{netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.0/8")}},
		{"app.command", app.Command, []string{"x", ""}},
		{"app.directory", app.Directory, base + "/srv"},
		{"app.startsecs", app.StartWait, 90 * time.Second},
		{"app.stopsignal", app.StopSignal, syscall.SIGQUIT},
		{"app.autorestart", app.Autorestart, "true"},
		{"app.severity", app.Severity, StreamSeverity{info, 3}},
		{"app.stdout", app.Stdout, []string{"raw"}},
		{"app.stderr", app.Stderr, []string(nil)},
		{"quiet.stderr", quiet.Stderr, []string{}},
		{"raw.path", raw.Path, base + "/log/$host/a.log"},
		{"raw.flush", raw.Flush, time.Minute},
		{"raw.compress", raw.Compress, "none"},
		{"raw.gap_notice", raw.GapNotice, false},
		{"raw.match.severity", raw.Match.Severity, SeverityRange{0, 3}},
		{"raw.match.message", raw.Match.Message.String(), "^x$"},
		{"json.path", json.Path, base + "/b.log"},
		{"json.flush", json.Flush, 5 * time.Second},
		{"json.gap_notice", json.GapNotice, true},
		{"line.template", line.Template, "$$ $message"},
		{"line.format", line.Format, ""},
		{"line.gap_notice", line.GapNotice, true},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s is %#v, want %#v", c.what, c.got, c.want)
		}
	}
}

// CF02: one error anywhere leaves no part of a config in force.
func TestAllOrNothing(t *testing.T) {
	cfg, err := Load(write(t, "conf.toml", `
		[source.in]
		type = "syslog"
		listen = "unixgram:///run/custom.sock"
		sinks = ["remote"]
		[sink.remote]
		type = "syslog"
		targets = ["udp://no port"]`))
	if cfg != nil {
		t.Errorf("a config with an error gave %+v", cfg)
	}
	errs, _ := err.(Errors)
	if len(errs) != 1 || errs[0].Key != "sink.remote.targets[0]" || errs[0].Line != 8 {
		t.Errorf("errors %v, want one of sink.remote.targets[0] at line 8", err)
	}
}

// CF03, CF02: a reload compares sections, so loading twice gives equal ones.
func TestLoadTwice(t *testing.T) {
	path := write(t, "conf.toml", `
		[source.in]
		type = "syslog"
		listen = "udp://:5140"
		timezone = "Europe/Berlin"
		sinks = ["out"]
		[sink.out]
		type = "stdout"
		match = { message = "a+[b-z](c|d)$" }`)
	a, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	a.Streams[0].Match.Message.MatchString("aaazd") // using one must not tell them apart
	_ = time.Now().In(a.Syslog[0].Timezone)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("two loads of one file differ:\n%+v\n%+v", a, b)
	}
	b.Syslog[0].MaxMessage++
	if reflect.DeepEqual(a, b) {
		t.Error("configs that differ are taken for equal")
	}
}

func TestDirectories(t *testing.T) {
	tests := []struct {
		name           string
		uid            int
		env            map[string]string
		runtime, state string
	}{
		{"root", 0, map[string]string{"XDG_RUNTIME_DIR": "/x", "HOME": "/root"}, "/run/logboom", "/var/lib/logboom"},
		{"session", 7, map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/s", "HOME": "/h"}, "/run/user/7/logboom", "/s/logboom"},
		{"no session", 7, map[string]string{"HOME": "/h"}, "/tmp/logboom-7", "/h/.local/state/logboom"},
		{"nothing", 7, nil, "/tmp/logboom-7", "/tmp/logboom-7/state"},
		{"relative ones are ignored", 7, map[string]string{"XDG_RUNTIME_DIR": "x", "XDG_STATE_HOME": "x", "HOME": "x"}, "/tmp/logboom-7", "/tmp/logboom-7/state"},
	}
	t.Setenv("TMPDIR", "/tmp")
	for _, tt := range tests {
		runtime, state := defaultDirs(tt.uid, func(name string) string { return tt.env[name] })
		if runtime != tt.runtime || state != tt.state {
			t.Errorf("%s: %q, %q, want %q, %q", tt.name, runtime, state, tt.runtime, tt.state)
		}
	}

	noSystemd(t)
	const set = "runtime_dir = \"r\"\nstate_dir = \"/s\"\n" + minimal
	if cfg := load(t, set); filepath.Base(cfg.RuntimeDir) != "r" || !filepath.IsAbs(cfg.RuntimeDir) || cfg.StateDir != "/s" {
		t.Errorf("set: %q, %q", cfg.RuntimeDir, cfg.StateDir)
	}
	// systemd.exec(5): several directories are separated by colons.
	t.Setenv("RUNTIME_DIRECTORY", "/run/unit:/run/other")
	t.Setenv("STATE_DIRECTORY", "/var/lib/unit")
	if cfg := load(t, set); cfg.RuntimeDir != "/run/unit" || cfg.StateDir != "/var/lib/unit" {
		t.Errorf("under systemd: %q, %q", cfg.RuntimeDir, cfg.StateDir)
	}
}
