package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const phpRequests = 1000

// phpServer is the command line of PHP's own web server with the script that
// logs a line a request, and its port.
func phpServer(t *testing.T) (command []string, port int) {
	t.Helper()
	need(t, "php", "ab")
	if _, err := os.Stat("/usr/share/php/Monolog/autoload.php"); err != nil {
		t.Skipf("php-monolog is not installed here: %v", err)
	}
	script, err := filepath.Abs("testdata/e2e/app.php")
	if err != nil {
		t.Fatal(err)
	}
	port = freePort(t, "tcp")
	return []string{"php", "-S", fmt.Sprintf("127.0.0.1:%d", port), script}, port
}

// request has ab send requests once the server listens, and checks that each
// was answered well.
func request(t *testing.T, port int) {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	eventually(t, 10*time.Second, "the server listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	out, err := exec.Command("ab", "-q", "-n", fmt.Sprint(phpRequests), "-c", "4", "http://"+address+"/").CombinedOutput()
	if err != nil || !bytes.Contains(out, fmt.Appendf(nil, "Complete requests:      %d\n", phpRequests)) || bytes.Contains(out, []byte("Non-2xx")) {
		t.Fatalf("ab: %v\n%s", err, out)
	}
}

// wantPHPLines checks that a text holds a whole line for each request; other
// lines are the server's own.
func wantPHPLines(t *testing.T, text []byte) {
	t.Helper()
	seen := make(map[string]bool)
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("app "))
		if !ok {
			if len(line) > 200 {
				t.Fatalf("a line is not whole: %d bytes: %.60q", len(line), line)
			}
			continue
		}
		id := string(rest[:min(17, len(rest))])
		if want := string(bytes.Repeat([]byte(id), 600)[:9995]) + "\n"; string(rest) != want {
			t.Fatalf("a line is not whole: %d bytes: %.60q ... %q", len(line), line, line[max(0, len(line)-100):])
		}
		if seen[id] {
			t.Fatalf("twice: %q", id)
		}
		seen[id] = true
	}
	if len(seen) != phpRequests {
		t.Errorf("%d lines of %d requests", len(seen), phpRequests)
	}
}

func TestPHPProgram(t *testing.T) {
	command, port := phpServer(t)
	d := startDaemon(t, prelude+fmt.Sprintf(`
[program.app]
command = ["%s", "%s", "%s", "%s"]
environment = { PHP_CLI_SERVER_WORKERS = "2" }
stopasgroup = true
stderr = ["app"]
stdout = []
[sink.app]
type = "file"
path = "app.gz"
`, command[0], command[1], command[2], command[3]))
	stopReading := readAllTheTime(t, d.path("app.gz"))
	request(t, port)
	got := d.stop()
	stopReading()
	text := readGzip(t, d.path("app.gz"))
	wantPHPLines(t, text)
	wantSums(t, got, bytes.Count(text, []byte("\n")))
}

func TestPHPExec(t *testing.T) {
	command, port := phpServer(t)
	path := filepath.Join(t.TempDir(), "app.gz")
	// PHP leaves its workers behind when it is told to stop: the shell tells
	// them all.
	stopAll := `trap 'trap "" TERM; kill 0; wait; exit 0' TERM; "$@" & wait`
	cmd := plainCommand(t, t.TempDir(), append([]string{"exec", "--to", path, "--", "sh", "-c", stopAll, "sh"}, command...)...)
	cmd.Env = append(cmd.Env, "PHP_CLI_SERVER_WORKERS=2")
	p := spawn(t, cmd)
	request(t, port)
	p.signal(unix.SIGTERM)
	if code := p.wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	wantPHPLines(t, readGzip(t, path))
}
