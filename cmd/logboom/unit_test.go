package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// directives are the settings of a unit file, each with its values.
func directives(t *testing.T, path string) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	lines := bufio.NewScanner(bytes.NewReader(readFile(t, path)))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			all[key] = append(all[key], value)
		}
	}
	return all
}

// The shipped unit lets the daemon write where the shipped config has it write,
// and has it stopped, and waited for, as it wants to be.
func TestUnit(t *testing.T) { // CF06, SU07
	service := directives(t, "../../etc/logboom.service")
	for key, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "User": "logboom", "KillMode": "mixed", "ProtectSystem": "strict",
		"RuntimeDirectory": "logboom", "RuntimeDirectoryPreserve": "yes", "StateDirectory": "logboom", "LogsDirectory": "logboom",
	} {
		if got := service[key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
	noSystemd(t)
	conf, err := Load("../../etc/conf.toml")
	if err != nil {
		t.Fatal(err)
	}
	if wait, err := time.ParseDuration(service["TimeoutStopSec"][0]); err != nil || wait <= conf.StopTimeout {
		t.Errorf("systemd kills it after %v (%v), and it may take %v", wait, err, conf.StopTimeout)
	}
	for _, address := range directives(t, "../../etc/logboom.socket")["ListenDatagram"] {
		if strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "/run/logboom/") {
			t.Errorf("%s is in no folder that the service can see and make", address)
		}
	}
	for _, s := range conf.Files {
		if !strings.HasPrefix(s.Path, "/var/log/logboom/") {
			t.Errorf("sink.%s: %s cannot be written to", s.Name, s.Path)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed here")
	}
	// It looks for the binary too.
	dir := t.TempDir()
	for _, name := range []string{"logboom.service", "logboom.socket"} {
		text := strings.ReplaceAll(string(readFile(t, "../../etc/"+name)), "/usr/bin/logboom", "/bin/true")
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("systemd-analyze", "verify", dir+"/logboom.service", dir+"/logboom.socket").CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The daemon says that it is ready when all its sockets are bound, and not
// before.
func TestReadyWhenBound(t *testing.T) { // CF06
	dir := t.TempDir()
	notes, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notes.Close()
	p := freePorts(t)
	configure(t, dir, p.with(prelude+trafficSources+trafficSink))
	bound := make(chan error, 1)
	go func() { // ends with the first READY=1, or after 20 s
		notes.SetReadDeadline(time.Now().Add(20 * time.Second))
		note := make([]byte, 4096)
		for {
			n, err := notes.Read(note)
			if err == nil && !slices.Contains(strings.Split(string(note[:n]), "\n"), "READY=1") {
				continue
			}
			if err == nil {
				var c net.Conn
				if c, err = net.Dial("tcp", p.with("127.0.0.1:TCP")); err == nil {
					c.Close()
				}
			}
			bound <- err
			return
		}
	}()
	d := runDaemon(t, dir, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+dir+"/notify") })
	if err := <-bound; err != nil {
		t.Error(err)
	}
	d.stop()
}
