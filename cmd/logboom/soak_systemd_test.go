package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSoakSystemd boots a Debian of its own under systemd-nspawn and has the
// shipped units checked in it.
func TestSoakSystemd(t *testing.T) {
	if os.Getenv("LOGBOOM_SOAK") == "" {
		t.Skip("skipped: takes two minutes; set LOGBOOM_SOAK=1, or make soak")
	}
	for _, tool := range []string{"debootstrap", "systemd-nspawn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: booting a system needs root")
	}
	root, err := os.MkdirTemp("/var/tmp", "logboom-systemd") // nspawn's root must not be on a tmpfs with nodev
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil { // it is the booted system's /
		t.Fatal(err)
	}
	mustRun(t, "debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,nginx-light,procps", "bookworm", root)
	build := exec.Command("make", "-C", "../..", "install", "DESTDIR="+root)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	load := exec.Command("go", "build", "-o", filepath.Join(root, "load"), "testdata/systemd/load.go")
	load.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("build of load: %v\n%s", err, out)
	}
	for from, to := range map[string]string{
		"check.sh": "check.sh", "nginx.conf": "etc/nginx/nginx.conf", "check.service": "etc/systemd/system/check.service",
	} {
		data, err := os.ReadFile("testdata/systemd/" + from)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "systemctl", "--root="+root, "enable", "logboom.service", "logboom.socket")
	mustRun(t, "systemctl", "--root="+root, "add-wants", "multi-user.target", "check.service")
	boot := exec.Command("systemd-nspawn", "-q", "-D", root, "--boot", "--register=no", "--keep-unit", "--private-network")
	console, err := os.Create(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	boot.Stdout, boot.Stderr = console, console
	if err := boot.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { boot.Process.Kill() })
	err = boot.Wait()
	limit.Stop()
	result, _ := os.ReadFile(filepath.Join(root, "result"))
	t.Logf("%s", result)
	if !strings.HasSuffix(string(result), "\nALL SEEN\n") {
		shown, _ := os.ReadFile(console.Name())
		t.Errorf("not all was seen (%v); the console:\n%s", err, shown)
	}
}

func mustRun(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
