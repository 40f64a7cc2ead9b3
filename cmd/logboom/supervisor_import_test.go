package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// samples are files as they are found in the wild, by their golden TOML.
var samples = map[string]string{
	"sail":  "testdata/supervisor/sail.conf",  // Laravel Sail's image
	"forge": "testdata/supervisor/forge.conf", // queue workers of a Forge-like panel
	"main":  "testdata/supervisor/main.conf",  // includes Horizon and Octane

	"container": "testdata/supervisor/run/container.conf", // constructs of many images
}

// sampleEnvironment is what Sail's image sets.
func sampleEnvironment(t *testing.T) {
	t.Setenv("SUPERVISOR_PHP_COMMAND", `/usr/bin/php -d variables_order=EGPCS "/var/www/html/artisan" serve --port=80`)
	t.Setenv("SUPERVISOR_PHP_USER", "nobody")
	t.Setenv("WEB_PORT", "8080")
	t.Setenv("WITH_WEB", "true")
	t.Setenv("WITH_LATER", "0")
	t.Setenv("PATH", os.Getenv("PATH")+":/a path")
	noSystemd(t)
}

// What is printed is what the golden file holds, and alone a valid config.
func TestImportSupervisor(t *testing.T) {
	sampleEnvironment(t)
	for name, ini := range samples {
		code, stdout, stderr := command("import-supervisor", ini)
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit %d, %s", name, code, stderr)
		}
		here, err := filepath.Abs("testdata/supervisor")
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata/supervisor", name+".toml")
		got := strings.ReplaceAll(stdout, here, "/etc/supervisor")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := string(readFile(t, golden)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		checkPrint(t, load(t, stdout))
	}
}

// What the programs become is what supervisord makes of them.
func TestImportedPrograms(t *testing.T) {
	sampleEnvironment(t)
	programs := make(map[string]instanceOf)
	imported := make(map[string]Program)
	for _, ini := range samples {
		text, err := importSupervisor(ini)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range load(t, string(text)).Programs {
			imported[p.Name] = p
			instances, err := p.instances()
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range instances {
				programs[i.name] = i
			}
		}
	}
	here, _ := filepath.Abs("testdata/supervisor")
	host, _ := os.Hostname()
	octane := programs["octane"]
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"names", sortedKeys(programs), []string{
			"cron_job_night", "horizon", "octane", "php", "worker-1001_00", "worker-1001_01", "worker-1001_02",
			"00", "01", "worker-1003_00", "worker-1003_01",
			"web_7", "beat-0", "beat-1", "later",
		}},
		{"php", programs["php"].command, []string{"/usr/bin/php", "-d", "variables_order=EGPCS", "/var/www/html/artisan", "serve", "--port=80"}},
		{"octane", octane.command, []string{"/bin/sh", "-c", `exec php "` + here + `/conf.d/artisan" octane:start --port=$PORT` + "\n" + `--date=$$(date +%Y-%m-%d) --at=%(x) ${HOME} web`}},
		{"octane's environment", octane.environment[3:], []string{
			"APP_ENV=production", "HOSTNAME=" + host, "KEY=a=b,c;d", "LIST=production", "NAME=a, b", "PATH=/opt/bin:" + os.Getenv("PATH"),
			"PORT=8000", "WHERE=" + here + "/conf.d/octane",
		}},
		{"web", programs["web_7"].command, []string{"php", "/app/web.php", "--listen=127.0.0.1:8080", "--workers=4"}},
		{"web's environment", programs["web_7"].environment[3:], []string{"LANG=en_US.utf8", "PATH=/app/bin:" + os.Getenv("PATH"), "PROCESS_NUM=7", "PYTHONUNBUFFERED=1"}},
		{"web's directory", programs["web_7"].directory, here + "/run"},
		{"beat", programs["beat-1"].command, []string{"sh", "-c", "if [ ${BEAT:-yes} = yes ]; then echo 'beat: 100%'; fi; exec sleep 300"}},
		{"beat's umask", imported["beat"].Umask, Umask{true, 0o022}},
		{"later's start", imported["later"].Autostart, false},
		{"octane's exitcodes", imported["octane"].ExitCodes, []int{0, 2}},
		{"octane's umask", imported["octane"].Umask, Umask{true, 0o027}},
		{"the job's umask", imported["cron_job_night"].Umask, Umask{true, 0o022}},
		{"the job", programs["cron_job_night"].command, []string{"sleep", "60"}},
		{"horizon's patience", imported["horizon"].StopWait.String(), "1h0m0s"},
		{"horizon's group", imported["horizon"].KillAsGroup, true}, // supervisord: false
		{"octane's group", imported["octane"].KillAsGroup, false},
	} {
		if c.what == "names" {
			c.got, c.want = set(c.got.([]string)), set(c.want.([]string))
		}
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
}

func TestImportSupervisorErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "there is no [program:x] section",
		"[supervisord]\n":       "there is no [program:x] section",
		"[program:a]\nuser=x\n": "[program:a] does not specify a command",
		"command=x\n":           `:1: "command=x" is neither a section nor an option`,
		"[program:a]\n\nwhat\n": `:3: "what" is neither a section nor an option`,
		"[program:a]\ncommand=x\nenvironment=A\n":                `[program:a] environment: "A" is not KEY=value`,
		"[program:a]\ncommand=x\nenvironment=A=\"b\n":            "[program:a] environment: A: a quote has no end",
		"[supervisord]\nenvironment=A\n[program:a]\ncommand=x\n": `[supervisord] environment: "A" is not KEY=value`,
	} {
		code, stdout, stderr := command("import-supervisor", write(t, "x.ini", text))
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %q, %q", text, code, stdout, stderr)
		}
	}
	if code, _, stderr := command("import-supervisor", "no-such-file"); code != 1 || !strings.Contains(stderr, "no-such-file: no such file") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// Whatever a file holds, what is printed of it is TOML that says no more than
// what a config may say.
func FuzzImportSupervisor(f *testing.F) {
	for _, ini := range samples {
		text, err := os.ReadFile(ini)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("[program:a]\ncommand=%(x)s $${ %%( \x00\\\"'\nprocess_name=%(process_num)\nnumprocs=2\nstdout_logfile=%(process_num)d")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // of files of this machine
		}
		out, err := importSupervisor(write(t, "x.ini", text))
		if err != nil {
			return
		}
		_, err = Load(write(t, "x.toml", string(out)))
		errs, _ := err.(Errors)
		for _, e := range errs {
			// A value may be wrong, as it was; the form may not.
			if e.Key == "" && !strings.Contains(e.Text, "is not set") || strings.Contains(e.Text, "unknown key") {
				t.Errorf("%v\n%s\nof\n%s", e, out, text)
			}
		}
	})
}

// reading is what one of the two makes of a process.
type reading struct {
	Command       []string          `json:"command"`
	Directory     string            `json:"directory"`
	Environment   map[string]string `json:"environment"`
	Autostart     bool              `json:"autostart"`
	Autorestart   string            `json:"autorestart"`
	StartSecs     float64           `json:"startsecs"`
	StartRetries  int               `json:"startretries"`
	ExitCodes     []int             `json:"exitcodes"`
	StopSignal    int               `json:"stopsignal"`
	StopWaitSecs  float64           `json:"stopwaitsecs"`
	StopAsGroup   bool              `json:"stopasgroup"`
	RedirectError bool              `json:"redirect_stderr"`
}

// An imported file means what supervisord itself reads in it.
func TestImportedAsSupervisordReads(t *testing.T) {
	const python = "/usr/bin/python3" // the system's, which has its packages
	if exec.Command(python, "-c", "import supervisor").Run() != nil {
		t.Skip("supervisord is not installed here")
	}
	sampleEnvironment(t)
	t.Setenv("QUEUE_WORKERS", "2")
	files, err := filepath.Glob("testdata/supervisor/run/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text := string(readFile(t, file))
		if !strings.Contains(text, "[supervisord]") {
			text += "\n[supervisord]\n"
		}
		ini := write(t, "supervisord.conf", text)
		out, err := exec.Command(python, "testdata/supervisor/dump.py", ini).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, err.(*exec.ExitError).Stderr)
		}
		var theirs map[string]reading
		if err := json.Unmarshal(out, &theirs); err != nil {
			t.Fatal(err)
		}
		imported, err := importSupervisor(ini)
		if err != nil {
			t.Fatal(err)
		}
		ours := make(map[string]reading)
		for _, p := range load(t, string(imported)).Programs {
			instances, err := p.instances()
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range instances {
				r := reading{
					i.command, i.directory, make(map[string]string), p.Autostart, p.Autorestart, p.StartWait.Seconds(), p.StartRetries, p.ExitCodes,
					int(p.StopSignal), p.StopWait.Seconds(), p.StopAsGroup, p.RedirectStderr,
				}
				for _, v := range i.environment[3:] { // the first are supervisord's own
					name, value, _ := strings.Cut(v, "=")
					r.Environment[name] = value
				}
				ours[i.name] = r
			}
		}
		for name := range maps.Keys(ours) {
			if r := theirs[name]; r.Directory == "" { // what programs inherit of supervisord's own, when it runs
				r.Directory = ours[name].Directory
				theirs[name] = r
			}
		}
		if !reflect.DeepEqual(ours, theirs) {
			t.Errorf("%s: we read\n%+v\nsupervisord\n%+v", file, ours, theirs)
		}
	}
}
