package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"logboom/proc"
	"logboom/sink"
)

func TestExpandPercents(t *testing.T) {
	t.Setenv("LOGBOOM_TEST", "a %(b)s $c")
	x := expander{"program_name": "worker", "process_num": 7, "numprocs": 12}
	for in, want := range map[string]string{
		"":                              "",
		"100% of 5 %d %%":               "100% of 5 %d %%", // unlike in Python: a shell's date +%F stays as it is
		"%(program_name)s":              "worker",
		"%(program_name)8s|":            "  worker|",
		"%(program_name)-8s|":           "worker  |",
		"%(program_name).3s":            "wor",
		"%(process_num)d %(numprocs)s":  "7 12",
		"%(process_num)02d":             "07",
		"%(process_num)-4d|":            "7   |",
		"%(process_num)4s":              "   7",
		"%%(process_num)02d %%%(":       "%(process_num)02d %%(",
		"%(ENV_LOGBOOM_TEST)s":          "a %(b)s $c", // what is inserted is not looked at again
		"%(process_num)02d%(numprocs)d": "0712",
	} {
		if got, err := x.expand(in); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"%(program_name)d":          "wants %(program_name)s",
		"%(program_name)":           "wants %(program_name)s",
		"%(process_num)x":           "wants %(process_num)s",
		"%(process_num)9999d":       "is too wide",
		"%(nothing)s":               "unknown name: want here, numprocs, process_num, program_name or ENV_",
		"%()s":                      "unknown name",
		"%(ENV_LOGBOOM_TEST_NOT)s ": `environment variable "LOGBOOM_TEST_NOT" is not set`,
	} {
		if got, err := x.expand(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v, want %s", in, got, err, want)
		}
	}
}

// The settings of each process, and which environment they see.
func TestInstances(t *testing.T) {
	t.Setenv("LOGBOOM_TEST", "daemon")
	cfg := load(t, `
		[program.worker]
		command = ["echo", "%(process_num)d", "%(ENV_LOGBOOM_TEST)s", "%(ENV_OWN)s", "%%(x)s"]
		environment = { OWN = "/%(program_name)s", LOGBOOM_TEST = "of %(ENV_LOGBOOM_TEST)s" }
		directory = "%(ENV_OWN)s"
		reload_command = "kill %(process_num)d"
		numprocs = 2
		numprocs_start = 1
		stdout = []
		stderr = []`)
	got, err := cfg.Programs[0].instances()
	if err != nil {
		t.Fatal(err)
	}
	var want []instanceOf
	for _, n := range []string{"1", "2"} {
		want = append(want, instanceOf{
			name: "worker_0" + n, command: []string{"echo", n, "of daemon", "/worker", "%(x)s"}, directory: "/worker",
			environment: []string{
				"SUPERVISOR_ENABLED=1", "SUPERVISOR_PROCESS_NAME=worker_0" + n, "SUPERVISOR_GROUP_NAME=worker",
				"LOGBOOM_TEST=of daemon", "OWN=/worker",
			},
			reload: []string{"kill", n},
		})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAccount(t *testing.T) {
	var a, b Account
	if err := a.UnmarshalText([]byte("root")); err != nil || a.UID != 0 || a.GID != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := b.UnmarshalText([]byte("0")); err != nil || b.Name != "0" || !reflect.DeepEqual(b.Groups, a.Groups) {
		t.Errorf("%+v, %v", b, err)
	}
	if os.Geteuid() == 0 && a.credential() != nil {
		t.Error("root becomes root")
	}
	if c := (&Account{Name: "x", UID: 1 << 30, GID: 5, Groups: []int{6, 7}}).credential(); c == nil || c.Uid != 1<<30 || c.Gid != 5 || !reflect.DeepEqual(c.Groups, []uint32{6, 7}) {
		t.Errorf("%+v", c)
	}
	if (&Account{}).credential() != nil {
		t.Error("nobody was named")
	}
}

// prefixed puts a prefix before blocks and returns what came out, a block each.
func prefixed(t *testing.T, prefix string, in ...proc.Block) (out []string, lines int) {
	t.Helper()
	p, err := parsePrefix(prefix)
	if err != nil {
		t.Fatal(err)
	}
	o := &sink.Origin{Source: "src", Stream: "stderr", LocalHost: "app01", Priority: 1<<3 | 4, Program: []byte("php"), PID: []byte("42")}
	take := p.of(o, "php_01").before(func(b proc.Block) {
		out = append(out, string(b.Text))
		lines += b.Lines
		if !b.Partial && !b.Last && b.Lines != strings.Count(string(b.Text), "\n") {
			t.Errorf("%d lines in %q", b.Lines, b.Text)
		}
	})
	for _, b := range in {
		b.Received = time.Date(2026, 3, 15, 10, 20, 30, 5e6, time.UTC)
		take(b)
	}
	return out, lines
}

func whole(text string) proc.Block {
	return proc.Block{Text: []byte(text), Lines: strings.Count(text, "\n")}
}

func piece(text string) proc.Block {
	return proc.Block{Text: []byte(text), Lines: 1, Partial: true}
}

// more is a block that goes on with what the one before began.
func more(b proc.Block) proc.Block {
	b.Continues = true
	return b
}

// SU11: the prefix goes before each line; PI08: and never into one.
func TestPrefix(t *testing.T) {
	last := func(b proc.Block) proc.Block { b.Last = true; return b }
	record := func(b proc.Block) proc.Block { b.Record = true; return b }
	tests := []struct {
		prefix string
		in     []proc.Block
		want   string // blocks, separated by |
	}{
		{"> ", []proc.Block{whole("a\n\nb\n")}, "> a\n> \n> b\n"},
		{"$time $program[$pid] $stream: ", []proc.Block{whole("a\n")}, "2026-03-15T10:20:30.005Z php[42] stderr: a\n"},
		{"${process}$$ $host $source $facility.$severity ", []proc.Block{whole("a\n")}, "php_01$ app01 src user.warning a\n"},
		{"$time$time", []proc.Block{whole("\n")}, "2026-03-15T10:20:30.005Z2026-03-15T10:20:30.005Z\n"},
		{"> ", []proc.Block{piece("a"), more(piece("b")), more(piece("c\n")), whole("d\n")}, "> a|b|c\n|> d\n"},
		{"> ", []proc.Block{piece("a"), more(last(piece("b"))), whole("c\n")}, "> a|b|> c\n"},
		{"> ", []proc.Block{record(piece("a\nb\n")), more(record(piece("c\n"))), record(whole("d\n"))}, "> a\nb\n|c\n|> d\n"},
		{"> ", []proc.Block{{Text: []byte("a"), Lines: 1, Last: true}}, "> a"},
	}
	for _, tt := range tests {
		if out, _ := prefixed(t, tt.prefix, tt.in...); strings.Join(out, "|") != tt.want {
			t.Errorf("%q: %q, want %q", tt.prefix, strings.Join(out, "|"), tt.want)
		}
	}
	for _, bad := range []string{"$what", "$", "a$ b", "${time", "${}", "$message", "$1"} {
		if _, err := parsePrefix(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Short lines with a long prefix go out in chunks, all of them.
func TestPrefixChunks(t *testing.T) {
	in := strings.Repeat("\n", 20_000)
	out, lines := prefixed(t, strings.Repeat("x", 100), whole(in))
	if lines != 20_000 || len(strings.Join(out, "")) != 20_000*101 || len(out) < 10 {
		t.Errorf("%d blocks, %d lines", len(out), lines)
	}
	for _, text := range out {
		if len(text) > prefixChunk+101 {
			t.Errorf("a block of %d bytes", len(text))
		}
	}
}

// raceEnabled is set where the race detector adds allocations of its own.
var raceEnabled bool

func TestPrefixAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are not counted under the race detector")
	}
	p, err := parsePrefix("$time $program[$pid] ")
	if err != nil {
		t.Fatal(err)
	}
	take := p.of(&sink.Origin{Program: []byte("php"), PID: []byte("42")}, "php").before(func(proc.Block) {})
	b := whole(strings.Repeat("a line of a program\n", 1000))
	b.Received = time.Now()
	take(b)
	if n := testing.AllocsPerRun(100, func() { take(b) }); n != 0 {
		t.Errorf("%v allocations a block", n)
	}
}

// The order of priorities, who shares one, and that nothing comes before what
// it depends on.
func TestInOrder(t *testing.T) {
	var feeds []*feed
	for name, priority := range map[string]int{"a": 999, "b": -1, "c": 999, "d": 5, "needs-a": 1, "needs-it": 1} {
		s := Program{Name: name, Priority: priority}
		if needed, ok := map[string]string{"needs-a": "a", "needs-it": "needs-a"}[name]; ok {
			s.DependsOn = []string{needed, "b", "not here"}
		}
		feeds = append(feeds, &feed{input: &input{name: name}, section: s})
	}
	feeds = append(feeds, &feed{input: &input{name: "s"}, section: FIFOSource{}})
	var got []int
	for _, level := range inOrder(feeds) {
		got = append(got, len(level))
	}
	if fmt.Sprint(got) != "[1 1 2 1 1]" || inOrder(feeds)[0][0].name != "b" || inOrder(feeds)[3][0].name != "needs-a" {
		t.Errorf("levels of %v", got)
	}
}

func TestMeant(t *testing.T) {
	for name, want := range map[string]bool{
		"all": true, "worker": true, "worker_01": true, "worker:worker_01": true, "worker:*": true,
		"worker_02": false, "work": false, "worker:": false, "worker:worker_02": false, "other:worker_01": false, "*": false, "": false,
	} {
		if got := meant(name, "worker", "worker_01"); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
