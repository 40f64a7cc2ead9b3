package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// phpStub stands for PHP: it says what it was called for, and works until it is
// stopped.
const phpStub = "#!/bin/sh\necho \"$*\"\nexec sleep 300\n"

// homeOf makes a folder in the place of the system's, with the stub in bin/ and
// the folders that the samples name.
func homeOf(t *testing.T, folders ...string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // users of programs come by
		t.Fatal(err)
	}
	for _, folder := range append(folders, "/bin") {
		if err := os.MkdirAll(root+folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"php", "php8.3"} {
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte(phpStub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Files of supervisord in the shapes that public projects have them are
// imported and run: all their processes come up, each with its words, and what
// they write is where the file says.
func TestImportedProgramsRun(t *testing.T) {
	const forge, html = "/home/forge", "/var/www/html"
	root := homeOf(t, forge+"/app.example", forge+"/shop.example", forge+"/.forge", html+"/storage/logs", "/app/log")
	t.Setenv("PATH", root+"/bin:"+os.Getenv("PATH"))
	t.Setenv("SUPERVISOR_PHP_COMMAND", root+"/bin/php -d variables_order=EGPCS "+html+"/artisan serve --port=80")
	t.Setenv("SUPERVISOR_PHP_USER", "root")
	t.Setenv("QUEUE_WORKERS", "2")
	t.Setenv("WEB_PORT", "8080")
	t.Setenv("WITH_WEB", "true")
	t.Setenv("WITH_LATER", "0")
	noSystemd(t)
	for name, tt := range map[string]struct {
		processes int
		files     map[string][]string // below root; "" is the daemon's own output
	}{
		"sail": {4, map[string][]string{
			"": {
				"-d variables_order=EGPCS /var/www/html/artisan serve --port=80",
				"ROOT/var/www/html/artisan queue:work --sleep=3 --tries=3 --max-time=3600",
				"ROOT/var/www/html/artisan queue:work --sleep=3 --tries=3 --max-time=3600",
			},
			"/var/www/html/storage/logs/reverb.log": {"artisan reverb:start --host=0.0.0.0"},
		}},
		"docs": {10, map[string][]string{
			"/home/forge/app.example/worker.log":   repeated("ROOT/home/forge/app.example/artisan queue:work sqs --sleep=3 --tries=3 --max-time=3600", 8),
			"/home/forge/app.example/horizon.log":  {"ROOT/home/forge/app.example/artisan horizon"},
			"/home/forge/app.example/schedule.log": {"ROOT/home/forge/app.example/artisan schedule:run --verbose --no-interaction"},
		}},
		"forge": {4, map[string][]string{
			"/home/forge/.forge/worker-214536.log": repeated("ROOT/home/forge/shop.example/artisan queue:work redis --sleep=10 --quiet --timeout=60 --delay=0 --tries=3 --queue=high,default", 3),
			"/home/forge/.forge/daemon-77012.log":  {"artisan octane:start --server=swoole --port=8000"},
		}},
		"container": {3, map[string][]string{
			"/app/log/web_07-of-1.log": {"ROOT/app/web.php --listen=127.0.0.1:8080 --workers=4"},
			"/app/log/beat.log":        {"beat: 100%", "beat: 100%"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, stdout := runImported(t, root, filepath.Join("testdata/supervisor/run", name+".conf"))
			up := func() (n int) {
				for _, p := range d.status().Programs {
					if p.State == "RUNNING" {
						n++
					}
				}
				return n
			}
			eventually(t, 15*time.Second, "all processes run", func() bool { return up() == tt.processes })
			for file, want := range tt.files {
				read := stdout
				if file != "" {
					read = func() string { return string(readFile(t, root+file)) }
				}
				wanted := strings.ReplaceAll(strings.Join(want, "\n")+"\n", "ROOT", root)
				got := ""
				eventually(t, 10*time.Second, "the lines of "+file, func() bool {
					got = read()
					return strings.Count(got, "\n") == len(want)
				})
				if strings.Join(sorted([]byte(got)), "") != strings.Join(sorted([]byte(wanted)), "") {
					t.Errorf("%q: got\n%swant\n%s", file, got, wanted)
				}
			}
			d.stop()
		})
	}
}

func repeated(line string, n int) []string {
	return strings.Split(strings.Repeat(line+"\n", n-1)+line, "\n")
}

// runImported runs a daemon with what import-supervisor makes of a file, whose
// folders are looked for below root. stdout is what the daemon wrote there.
func runImported(t *testing.T, root, file string) (d *instance, stdout func() string) {
	t.Helper()
	text := strings.NewReplacer("/home/forge", root+"/home/forge", "/var/www/html", root+"/var/www/html", "/app/", root+"/app/").Replace(string(readFile(t, file)))
	if unix.Geteuid() != 0 {
		text = strings.ReplaceAll(text, "user=", ";user=")
	}
	imported, err := importSupervisor(write(t, "supervisord.conf", text))
	if err != nil {
		t.Fatal(err)
	}
	var out output
	d = startDaemon(t, prelude+"[batch]\nflush = \"10ms\"\n"+string(imported), func(cmd *exec.Cmd) { cmd.Stdout = &out })
	return d, out.String
}
