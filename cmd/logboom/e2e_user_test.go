package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is an ordinary user, where the tests run as root.
const nobody = 65534

// asUser runs a command as an ordinary user who may lock no memory.
func asUser(t *testing.T) setting {
	t.Helper()
	need(t, "prlimit", "setpriv")
	logboom(t) // builds it
	wrapper := []string{"prlimit", "--memlock=0:0"}
	if os.Getuid() == 0 {
		wrapper = append(wrapper, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
	}
	return func(cmd *exec.Cmd) {
		// Another user's descriptors are out of reach; one's own are not.
		cmd.ExtraFiles = []*os.File{built}
		cmd.Args[0] = "/proc/self/fd/3"
		behind(wrapper...)(cmd)
	}
}

// userDir is a folder in memory that the user has.
func userDir(t *testing.T) string {
	t.Helper()
	dir := tmpfsDir(t)
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// userConf puts a config where the user can read it.
func userConf(t *testing.T, dir, conf string) {
	t.Helper()
	configure(t, dir, conf)
	if err := os.Chmod(filepath.Join(dir, "conf.toml"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The arena works for an ordinary user whose memory cannot be locked, which is
// said; and one that is left behind is larger than the next memory.cap.
func TestArenaWithoutRoot(t *testing.T) {
	dir := userDir(t)
	user := asUser(t)
	conf := func(size string) string {
		return fill(arenaConf, "SINK", "f", "[batch]", "[memory]\ncap = \""+size+"\"\n[batch]\nmessages = 1000000",
			"sinks =", "when_full = \"block\"\nsinks =")
	}
	userConf(t, dir, conf("16MiB"))
	d := runDaemon(t, dir, user)
	if got := d.entries("cannot be locked"); len(got) != 1 {
		t.Errorf("%v: want one warning that memory cannot be locked", got)
	}
	if got := d.entries("not on a tmpfs"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	write := toDatagrams(t, "unixgram", d.path("s.sock"))
	const lines = 30_000 // some 4 MB
	for n := range lines {
		if err := write(numbered(nil, "s", n)); err != nil {
			t.Fatal(err)
		}
	}
	d.received(lines)
	killAndWait(d.process)
	userConf(t, dir, conf("1MiB"))
	d = runDaemon(t, dir, user)
	if got := d.await("taking up", 10*time.Second)["messages"]; got == nil || got.(float64) == 0 {
		t.Errorf("%v messages are taken up", got)
	}
	d.stop()
	wantAll(t, readGzip(t, d.path("log/f.gz")), "s", lines)
	if left := arenas(t, d.path("*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if os.Getuid() == 0 {
		var stat unix.Stat_t
		if err := unix.Stat(d.path("log/f.gz"), &stat); err != nil || stat.Uid != nobody {
			t.Errorf("the file belongs to %d, %v: it was not the user who ran it", stat.Uid, err)
		}
	}
}

// pipe has its arena in the user's runtime directory, and recover finds it.
func TestPipeWithoutRoot(t *testing.T) {
	dir := userDir(t)
	user := asUser(t)
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(logboom(t), args...)
		user(cmd)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_RUNTIME_DIR="+dir)
		return cmd
	}
	cmd := run("pipe", "--to", dir+"/f.log", "--flush", "1h")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd.Stdin = r
	p := spawn(t, cmd)
	r.Close()
	if _, err := io.WriteString(w, "hello\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the pipe is empty", func() bool {
		n, err := unix.IoctlGetInt(int(w.Fd()), unix.TIOCINQ)
		return err == nil && n == 0
	})
	killAndWait(p)
	if got := arenas(t, dir+"/logboom/pipe"); len(got) != 1 {
		t.Errorf("%v, want one", got)
	}
	if got := strings.TrimSpace(p.stderr.String()); got != "" {
		t.Errorf("it said %q", got)
	}
	var out bytes.Buffer
	cmd = run("recover", dir+"/logboom/pipe")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if got, err := os.ReadFile(dir + "/f.log"); string(got) != "hello\n" || err != nil {
		t.Errorf("%q, %v\n%s", got, err, out.String())
	}
}

// An arena that is written to a disk is said to be one.
func TestArenaOnDisk(t *testing.T) {
	if isOnTmpfs(t.TempDir()) {
		t.Skip("the temporary directory is a tmpfs")
	}
	d := startDaemon(t, fill(arenaConf, "SINK", "f"))
	if got := d.entries("not on a tmpfs"); len(got) != 1 {
		t.Errorf("%v, want one warning", got)
	}
	d.stop()
}
