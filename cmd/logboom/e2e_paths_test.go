package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// hostConf files messages by the host that they name.
const hostConf = prelude + `
[source.in]
type = "syslog"
listen = "unixgram://in.sock"
sinks = ["file"]
[sink.file]
type = "file"
path = "log/$host/app.gz"
flush = "50ms"
max_open = 50
max_new_files = 400
`

// Many more paths than descriptors: each file is whole, and few are open.
func TestManyPaths(t *testing.T) { // FI05, FI16
	const hosts, each = 400, 5
	d := startDaemon(t, hostConf, behind("sh", "-c", `ulimit -n 100 && exec "$@"`, "sh"))
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	most := 0
	for n := range each {
		for h := range hosts {
			// A stride that has no factor in common mixes the order up.
			host := h * 37 % hosts
			if err := write(fmt.Appendf(nil, "<14>Mar 15 10:20:30 host%d app: line %d of %d\n", host, n, host)); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, d.descriptors())
	}
	eventually(t, 20*time.Second, "all is delivered", func() bool {
		most = max(most, d.descriptors())
		return d.status().Sinks["file"].Delivered == hosts*each
	})
	// Beside the files: the log, sockets, the poller and what belongs to Go.
	if most > 50+30 {
		t.Errorf("%d descriptors with max_open = 50", most)
	}
	wantSums(t, d.stop(), hosts*each)
	for h := range hosts {
		var want []byte
		for n := range each {
			want = fmt.Appendf(want, "line %d of %d\n", n, h)
		}
		if text := readGzip(t, d.path("log", fmt.Sprintf("host%d", h), "app.gz")); !bytes.Equal(text, want) {
			t.Fatalf("host%d: %q, want %q", h, text, want)
		}
	}
}

// A host name leads nowhere but below the folder, and more names than are
// allowed go to one file.
func TestInventedPaths(t *testing.T) { // SE01
	d := startDaemon(t, hostConf)
	write := toDatagrams(t, "unixgram", d.path("in.sock"))
	evil := map[string]string{ // host name to folder
		"../../../evil": "___.._.._evil", "..": "__", ".": "_", "/etc/evil": "_etc_evil",
		"a/../../../evil": "a_.._.._.._evil", ".hidden": "_hidden",
	}
	for host := range evil {
		if err := write(fmt.Appendf(nil, "<14>1 2026-03-15T10:20:30Z %s app - - - %[1]s\n", host)); err != nil {
			t.Fatal(err)
		}
	}
	const invented = 1000
	for n := range invented {
		if err := write(fmt.Appendf(nil, "<14>Mar 15 10:20:30 invented%d app: line\n", n)); err != nil {
			t.Fatal(err)
		}
	}
	wantSums(t, d.stop(), len(evil)+invented)
	for host, folder := range evil {
		if text := readGzip(t, d.path("log", folder, "app.gz")); string(text) != host+"\n" {
			t.Errorf("%s holds %q, want %q", folder, text, host)
		}
	}
	lines, files := 0, 0
	err := filepath.WalkDir(d.path("log"), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files++
			lines += bytes.Count(readGzip(t, path), []byte("\n"))
		}
		return err
	})
	if err != nil || lines != len(evil)+invented || files > 401 {
		t.Errorf("%d lines in %d files below the folder, %v: want %d, in 401 files at most", lines, files, err, len(evil)+invented)
	}
	outside, err := filepath.Glob(filepath.Join(filepath.Dir(d.dir), "*evil*"))
	if err != nil || len(outside) > 0 {
		t.Errorf("outside: %v, %v", outside, err)
	}
}
