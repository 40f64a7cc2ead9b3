package main

import (
	"bytes"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

const shipped = "../../conf.toml"

// commented matches a setting, or the header of a section, that is off.
var commented = regexp.MustCompile(`(?m)^#([a-z_\[])`)

// uncommented turns on everything that a config shows.
func uncommented(text string) string { return commented.ReplaceAllString(text, "$1") }

func readShipped(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// checkPrint checks that what is printed of a config is read as the same.
func checkPrint(t *testing.T, cfg *Config) {
	t.Helper()
	printed := appendConfig(nil, cfg)
	again, err := Load(write(t, "printed.toml", string(printed)))
	if err != nil {
		t.Fatalf("what was printed is refused:\n%v\n%s", err, printed)
	}
	if !reflect.DeepEqual(cfg, again) {
		t.Errorf("what was printed is another config:\n%s\nwant\n%+v\ngot\n%+v", printed, cfg, again)
	}
	if twice := appendConfig(nil, again); !bytes.Equal(printed, twice) {
		t.Errorf("printed twice:\n%s\n%s", printed, twice)
	}
}

func TestPrint(t *testing.T) {
	t.Setenv("LOGBOOM_TEST", "$host%Y")
	for name, text := range map[string]string{
		"minimal":            minimal,
		"shipped":            readShipped(t),
		"shipped, all of it": uncommented(readShipped(t)),
		"strings": `
			[program.app]
			command = ["a b", "", "\u0001\t\n\r\u007f\u0085\"\\'", "$$ $$$$ $${env:X} ${x} $x $", "é€😀"]
			environment = { "b c" = "$$${env:LOGBOOM_TEST}", D = "", "é" = "1" }
			autorestart = false
			severity = { stdout = "debug" }
			stdout = ["file"]
			stderr = []
			[sink.file]
			type = "file"
			path = "$$/${env:LOGBOOM_TEST}/%%/${host:-x}/$host.log"
			template = "$$ ${env:LOGBOOM_TEST} %Y $message"
			match = { message = "a$$" }
			memory = "100KiB"`,
		"times": `
			stop_timeout = "1m30s"
			[batch]
			flush = "1500us"
			[source.in]
			type = "syslog"
			listen = "udp://[::1]:5140"
			timezone = "Europe/Berlin"
			drain_interval = "0"
			when_full = "0"
			allow = ["10.0.0.1", "fe80::/10"]
			sinks = ["s.1"]
			[sink."s.1"]
			type = "syslog"
			targets = ["tcp://a.example:1", "unixgram:///dev/log", "udp://[::1]:2"]
			framing = "octet"
			match = { severity = "err" }`,
	} {
		t.Run(name, func(t *testing.T) { checkPrint(t, load(t, text)) })
	}
}

// The shipped config works for anyone: nothing in it needs root.
func TestShippedConfig(t *testing.T) {
	noSystemd(t)
	cfg, err := Load(shipped)
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{cfg.RuntimeDir, cfg.StateDir, cfg.FIFOs[0].Path, cfg.Files[0].Path}
	for _, s := range cfg.Syslog {
		if s.Listen.isPath() {
			paths = append(paths, s.Listen.Address)
		} else if !strings.HasPrefix(s.Listen.Address, "127.0.0.1:") {
			t.Errorf("source %s listens on %s", s.Name, s.Listen)
		}
	}
	root := strings.TrimSuffix(cfg.RuntimeDir, "/run")
	for _, p := range paths {
		if !strings.HasPrefix(p, root+"/run") {
			t.Errorf("%s is outside of the folder run", p)
		}
	}
	if n := len(cfg.Syslog) + len(cfg.FIFOs); n != 3 || len(cfg.Files) != 1 {
		t.Errorf("%d sources, %d files", n, len(cfg.Files))
	}
}

// CF08: every key that the decoder knows is shown, and every key shown, also
// where it is commented out, is one that the decoder knows and that has an
// effect where it stands.
func TestShippedConfigShowsEveryKey(t *testing.T) {
	noSystemd(t)
	text := uncommented(readShipped(t))
	load(t, text) // knows every key that is shown

	var tree map[string]map[string]any
	shown := make(map[string]bool)
	md, err := toml.Decode(strings.Replace(text, "include =", "top.include =", 1), &struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := toml.Decode(text[strings.Index(text, "\n[log]"):], &tree); err != nil {
		t.Fatal(err)
	}
	for _, key := range md.Keys() {
		kind := key[0]
		switch {
		case len(key) == 1 || len(key) == 2 && kind == "top":
			shown["top."+key[len(key)-1]] = true
		case kind == "source" || kind == "sink":
			kind += "." + tree[kind][key[1]].(map[string]any)["type"].(string)
			fallthrough
		case kind == "program":
			shown[kind+"."+strings.Join(key[2:], ".")] = true
		default:
			shown[key.String()] = true
		}
	}
	for _, key := range allKeys() {
		if !shown[key] {
			t.Errorf("%s is not shown", key)
		}
	}
}

// allKeys lists the keys that the decoder knows, of the sinks' common part
// those of a file alone, since the text says that they are of every sink.
func allKeys() []string {
	keys := []string{"top.include"}
	var add func(prefix string, v reflect.Value)
	add = func(prefix string, v reflect.Value) {
		known, _ := fields(v)
		for i := range known {
			f := &known[i]
			keys = append(keys, prefix+f.name)
			if f.value.Kind() == reflect.Struct && !isScalar(f.value.Type()) {
				inner := prefix + f.name + "."
				if prefix == "top." {
					inner = f.name + "."
				}
				add(inner, f.value)
			}
		}
	}
	for prefix, section := range map[string]any{
		"top.": Config{}, "source.syslog.": SyslogSource{}, "source.fifo.": FIFOSource{}, "source.stdin.": StdinSource{},
		"program.": Program{}, "sink.file.": FileSink{},
	} {
		add(prefix, reflect.ValueOf(section))
	}
	add("sink.syslog.", reflect.ValueOf(SyslogSink{}))
	add("sink.stdout.", reflect.ValueOf(StreamSink{}))
	common := make(map[string]bool)
	known, _ := fields(reflect.ValueOf(Output{}))
	for i := range known {
		common[known[i].name] = true
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		parts := strings.Split(key, ".")
		elsewhere := parts[0] == "sink" && parts[1] != "file"
		// The keys of Text are shown in full with the file sink, too.
		return elsewhere && (common[parts[2]] || key == "sink.stdout.format") ||
			key == "sink.file.template" // shown with the stream, which excludes format
	})
	return slices.Sorted(maps.Keys(set(keys)))
}

func set(list []string) map[string]bool {
	m := make(map[string]bool)
	for _, s := range list {
		m[s] = true
	}
	return m
}
