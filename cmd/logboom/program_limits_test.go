package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"logboom/proc"
)

func TestRlimit(t *testing.T) {
	const none = uint64(unix.RLIM_INFINITY)
	for in, want := range map[string]Rlimit{
		"0":              {true, 0, 0},
		"65536":          {true, 65536, 65536},
		"64k":            {true, 65536, 65536},
		"1024:64KiB":     {true, 1024, 65536},
		"unlimited":      {true, none, none},
		"8MiB:unlimited": {true, 8 << 20, none},
	} {
		var l, again Rlimit
		if err := l.UnmarshalText([]byte(in)); err != nil || l != want {
			t.Errorf("%q: %+v, %v", in, l, err)
		}
		if err := again.UnmarshalText([]byte(text(l))); err != nil || again != l {
			t.Errorf("%q is printed as %q: %v", in, text(l), err)
		}
	}
	for in, want := range map[string]string{
		"": "is no limit", ":": "is no limit", "1:": "is no limit", "1:2:3": "is no limit", "-1": "is no limit",
		"infinity": "is no limit", "2:1": "over the hard one", "unlimited:5": "over the hard one",
	} {
		var l Rlimit
		if err := l.UnmarshalText([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || l != (Rlimit{}) {
			t.Errorf("%q: %+v, %v", in, l, err)
		}
	}
}

// Every limit that a config can name is one of the kernel's.
func TestRlimits(t *testing.T) {
	known, _ := fields(reflect.ValueOf(Rlimits{}))
	if len(known) != len(resources) {
		t.Errorf("%d keys, %d resources", len(known), len(resources))
	}
	for _, f := range known {
		if _, ok := resources[f.name]; !ok {
			t.Errorf("%s is none of the kernel's", f.name)
		}
	}
	got := Rlimits{NoFile: Rlimit{true, 5, 6}, CPU: Rlimit{Set: true}}.list()
	want := []proc.Limit{{Name: "nofile", Resource: unix.RLIMIT_NOFILE, Soft: 5, Hard: 6}, {Name: "cpu", Resource: unix.RLIMIT_CPU}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// nice and rlimits are the program's alone, also of one that runs as another
// user, who could not set them himself.
func TestProgramLimits(t *testing.T) {
	user := ""
	if unix.Geteuid() == 0 {
		user = `user = "nobody"`
	}
	d := startDaemon(t, prelude+fmt.Sprintf(`
[program.app]
command = ["sh", "-c", 'echo "$(ulimit -Sn) $(ulimit -Hn) $(ulimit -Sc) $(nice)"; exec sleep 300']
nice = 2
rlimits = { nofile = "64:128", core = 0 }
startsecs = 0
%s
sinks = ["out"]
`, user)+plainSink)
	inverse, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("64 128 0 %d", min(20-inverse+2, 19))
	if got := d.lines("out.log", 1); got[0] != want {
		t.Errorf("%q, want %q", got[0], want)
	}
	if text := string(readFile(t, fmt.Sprintf("/proc/%d/limits", d.pid()))); strings.Contains(text, " 128 ") {
		t.Errorf("the daemon's own limits:\n%s", text)
	}
	d.stop()
}
