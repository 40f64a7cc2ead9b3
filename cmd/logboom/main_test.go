package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// command runs a command line and returns its exit code and output.
func command(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	root := rootCommand()
	root.SetArgs(append([]string{}, args...)) // nil would be the test's own
	root.SetOut(&out)
	root.SetErr(&err)
	code = execute(root)
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	good := write(t, "conf.toml", minimal)
	bad := write(t, "conf.toml", "[batch]\nflush = 1\n")
	tests := []struct {
		args   []string
		code   int
		stdout string // must hold
		stderr string // must hold
	}{
		{[]string{"version"}, 0, "logboom ", ""},
		{[]string{"--help"}, 0, "check", ""},
		{[]string{"check", "-c", good}, 0, good + ": ok\n", ""},
		{[]string{"check", "--config", good, "--print"}, 0, "flush = \"1s\"\n", ""},
		{[]string{"check", "-c", bad}, 2, "", bad + ":2: batch.flush: "},
		{[]string{"check", "-c", bad, "--print"}, 2, "", bad + ":2: batch.flush: "},
		{[]string{"check", "-c", filepath.Join(t.TempDir(), "none.toml")}, 2, "", "no such file"},
		{[]string{"check", "-c"}, 2, "", "needs an argument"},
		{[]string{"check", "--verbose"}, 2, "", "--verbose"},
		{[]string{"check", "extra"}, 2, "", `"extra"`},
		{[]string{"chekc"}, 2, "", `"chekc"`},
		{nil, 2, "", "name a command"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := command(tt.args...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit %d\nstdout %q\nstderr %q\nwant %d, %q, %q", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
			if (stderr == "") != (code == 0) || code != 0 && stdout != "" {
				t.Errorf("exit %d: stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}

func TestDefaultConfigPath(t *testing.T) {
	system := write(t, "conf.toml", minimal)
	if got := defaultConfigPath(system); got != system {
		t.Errorf("with a system's config: %q, want %q", got, system)
	}
	if err := os.Remove(system); err != nil {
		t.Fatal(err)
	}
	if got := defaultConfigPath(system); got != "conf.toml" {
		t.Errorf("without: %q, want conf.toml", got)
	}
}

func TestVersion(t *testing.T) {
	build := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}}
	if got := describe(build); got != "logboom v1.2.3 go1.26.0" {
		t.Errorf("of a release: %q", got)
	}
	build.Settings = []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
	}
	if got := describe(build); got != "logboom v1.2.3 0123456789ab modified go1.26.0" {
		t.Errorf("of a checkout: %q", got)
	}
}
