package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"logboom/bench/report"
)

// bench is one call of the command: its settings, and what it found and made
// on this machine.
type bench struct {
	settings
	self      string // this program
	dir       string // of everything on disk
	memoryDir string // on tmpfs where there is one: logboom's runtime directory
	floors    []floor
	discard   []receiver // the floor that discards, if it can be made here
	netns     bool       // may make network namespaces
	measured  int        // trials so far, for names of folders
	failed    int        // of them
}

// A suite makes comparisons that share no state but the bench.
type suite struct {
	name  string
	plans func(*bench) []*plan
}

// suites are all of them, in the order in which they run.
var suites = []suite{
	{"udp", (*bench).udpSuite},
	{"unix", (*bench).unixSuite},
	{"queue", (*bench).queueSuite},
	{"nginx", (*bench).nginxSuite},
	{"pipe", (*bench).pipeSuite},
	{"octane", (*bench).octaneSuite},
	{"paths", (*bench).pathsSuite},
	{"readers", (*bench).readersSuite},
}

func suiteNames() []string {
	var names []string
	for _, suite := range suites {
		names = append(names, suite.name)
	}
	return names
}

// A plan is a table to be filled, and how.
type plan struct {
	table  *report.Table
	trials []trial // of the table's rows
}

// A trial measures a row once. Everything that it makes is below dir, and
// everything that it starts has ended when it returns.
type trial struct {
	row *report.Row
	run func(ctx context.Context, dir string) (report.Sample, error)
}

// add adds a row to a plan.
func (p *plan) add(name string, ours bool, run func(ctx context.Context, dir string) (report.Sample, error)) {
	p.trials = append(p.trials, trial{&report.Row{Name: name, Ours: ours}, run})
}

// missing notes a row that this machine cannot measure.
func (p *plan) missing(format string, arguments ...any) {
	p.table.Missing = append(p.table.Missing, fmt.Sprintf(format, arguments...))
}

func newBench(ctx context.Context, s settings) (*bench, error) {
	var err error
	b := &bench{settings: s}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if b.logboom, err = filepath.Abs(s.logboom); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(b.logboom); err != nil {
		return nil, fmt.Errorf("the binary to measure (make build makes it): %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "logboom-bench-"); err != nil {
		return nil, err
	}
	// nginx's workers and others that give up root read and write below it.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return nil, err
	}
	b.memoryDir = tmpfsDir(b.dir)
	b.floors = buildFloors(ctx, b.dir, b.self)
	b.discard = buildDiscard(ctx, b.dir)
	b.netns = canUnshare(ctx)
	return b, nil
}

// tmpfsDir is a folder of ours in /dev/shm if that has room for an arena, else
// one below dir. An installed logboom has its runtime directory on tmpfs.
func tmpfsDir(dir string) string {
	const shm, room = "/dev/shm", 512 << 20
	var fs unix.Statfs_t
	if unix.Statfs(shm, &fs) == nil && fs.Bavail*uint64(fs.Bsize) >= room {
		if made, err := os.MkdirTemp(shm, "logboom-bench-"); err == nil {
			return made
		}
	}
	return dir
}

// close removes what the bench made.
func (b *bench) close() {
	_ = os.RemoveAll(b.dir)
	_ = os.RemoveAll(b.memoryDir)
}

// machine says what this was measured on.
func (b *bench) machine() string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("medians of %d interleaved rounds of %v, lines from lowest to highest; %d cores, %s, Linux %s",
		b.rounds, b.length, runtime.NumCPU(), model, unix.ByteSliceToString(name.Release[:]))
}

// measure runs a suite's plans: rounds outermost, so that what the machine does
// meanwhile meets every row alike, and each round begins with another row, so
// that none always runs first. If it is interrupted, the tables hold what was
// measured until then.
func (b *bench) measure(ctx context.Context, name string, plans []*plan) (tables []*report.Table, err error) {
	for _, plan := range plans {
		tables = append(tables, plan.table)
	}
	for round := range b.rounds {
		for _, plan := range plans {
			for i := range plan.trials {
				trial := plan.trials[(i+round)%len(plan.trials)]
				fmt.Fprintf(os.Stderr, "%s: round %d of %d: %s: %s\n", name, round+1, b.rounds, plan.table.Title, trial.row.Name)
				b.try(ctx, trial)
				if err := ctx.Err(); err != nil {
					return tables, err
				}
			}
		}
	}
	return tables, nil
}

// plans are those of a suite, with the rows that were asked for.
func (b *bench) plans(name string) []*plan {
	var plans []*plan
	for _, suite := range suites {
		if suite.name == name {
			plans = suite.plans(b)
		}
	}
	for _, plan := range plans {
		var kept []trial
		for _, trial := range plan.trials {
			if b.rows.MatchString(trial.row.Name) {
				kept = append(kept, trial)
				plan.table.Rows = append(plan.table.Rows, trial.row)
			}
		}
		plan.trials = kept
	}
	return plans
}

// try runs a trial in a folder of its own and keeps what it found in its row.
func (b *bench) try(ctx context.Context, t trial) {
	b.measured++
	dir := filepath.Join(b.dir, fmt.Sprint(b.measured))
	var sample report.Sample
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		sample, err = t.run(ctx, dir)
	}
	if err != nil && ctx.Err() == nil {
		t.row.Errors = append(t.row.Errors, err.Error())
		b.failed++
	}
	t.row.Samples = append(t.row.Samples, sample)
	_ = os.RemoveAll(dir)
	_ = os.RemoveAll(b.runtimeDir(dir))
}

// runtimeDir is where a logboom that works below dir keeps its memory.
func (b *bench) runtimeDir(dir string) string {
	return filepath.Join(b.memoryDir, filepath.Base(dir)+"-run")
}
