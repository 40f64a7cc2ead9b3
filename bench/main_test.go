package main

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"logboom/bench/report"
)

// The bench starts itself as a writer and as a floor; so do its tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == writeCommand || os.Args[1] == floorCommand) {
		main()
	}
	goleak.VerifyTestMain(m)
}

// testBench is a bench of short measurements, with folders of its own.
func testBench(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := settings{rounds: 1, length: time.Second / 4, rows: regexp.MustCompile(""), rates: []int{2000}, logboom: "/nowhere/logboom"}
	return &bench{
		settings: s, self: self, dir: dir, memoryDir: dir,
		floors: buildFloors(t.Context(), dir, self), netns: canUnshare(t.Context()),
		discard: buildDiscard(t.Context(), dir),
	}
}

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		arguments string
		ok        bool
	}{
		"none":          {"", true},
		"all":           {"-n 1 -d 2s -rates 1,20 -rows log.* -svg x.svg -logboom x udp paths", true},
		"unknown suite": {"udp tcp", false},
		"no round":      {"-n 0", false},
		"too short":     {"-d 10ms", false},
	} {
		if _, err := parseSettings(strings.Fields(test.arguments)); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := parseSettings([]string{"-n", "3", "-rates", "1,20", "udp"})
	if err != nil || s.rounds != 3 || !slices.Equal(s.rates, []int{1, 20}) || !slices.Equal(s.suites, []string{"udp"}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, _ := parseSettings(nil); !slices.Equal(s.suites, suiteNames()) {
		t.Errorf("without a name the suites are %v", s.suites)
	}
}

func TestRates(t *testing.T) {
	for _, text := range []string{"", "0", "-1", "1,", "20k", "1, 2"} {
		if rates, err := parseRates(text); err == nil {
			t.Errorf("%q is taken for %v", text, rates)
		}
	}
}

// planOf is a plan whose rows do nothing but say that they ran.
func planOf(ran *[]string, names ...string) *plan {
	p := &plan{table: &report.Table{}}
	for _, name := range names {
		p.add(name, false, func(_ context.Context, dir string) (report.Sample, error) {
			*ran = append(*ran, name)
			if name == "fails" {
				return nil, errors.New("as it must")
			}
			return report.Sample{"turn": float64(len(*ran))}, os.WriteFile(dir+"/file", nil, 0o644)
		})
	}
	return p
}

func TestRoundsInterleave(t *testing.T) {
	b := testBench(t)
	b.rounds = 3
	var ran []string
	first, second := planOf(&ran, "a", "b", "fails"), planOf(&ran, "x", "y")
	if _, err := b.measure(t.Context(), "test", []*plan{first, second}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ran, " "), "a b fails x y b fails a y x fails a b x y"; got != want {
		t.Errorf("order is\n%s, want\n%s", got, want)
	}
	for _, trial := range first.trials {
		row := trial.row
		if len(row.Samples) != 3 || (len(row.Errors) == 3) != (row.Name == "fails") || (row.Samples[0] == nil) != (row.Name == "fails") {
			t.Errorf("row %+v", row)
		}
	}
	if b.failed != 3 || b.measured != 15 {
		t.Errorf("%d of %d failed, want 3 of 15", b.failed, b.measured)
	}
	left, _ := os.ReadDir(b.dir)
	for _, entry := range left {
		if entry.IsDir() {
			t.Errorf("a trial's folder was left: %s", entry.Name())
		}
	}
}

func TestAnInterruptKeepsWhatThereIs(t *testing.T) {
	b := testBench(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var ran []string
	p := planOf(&ran, "a")
	p.add("interrupted", false, func(ctx context.Context, _ string) (report.Sample, error) {
		interrupt()
		return nil, ctx.Err()
	})
	p.trials = append(p.trials, planOf(&ran, "never").trials...)
	tables, err := b.measure(ctx, "test", []*plan{p})
	if !errors.Is(err, context.Canceled) || len(tables) != 1 || !slices.Equal(ran, []string{"a"}) {
		t.Errorf("%d tables, %v, rows %v", len(tables), err, ran)
	}
	if b.failed != 0 {
		t.Error("an interrupted row is said to have failed")
	}
}

func TestRowsAreChosenByName(t *testing.T) {
	b := testBench(t)
	b.rows = regexp.MustCompile("^floor|kept")
	var names []string
	for _, plan := range b.plans("udp") {
		for _, row := range plan.table.Rows {
			names = append(names, row.Name)
		}
	}
	if len(names) != 1+len(b.floors) || names[0] != logboomWhole {
		t.Errorf("rows %q", names)
	}
}

func TestEverySuiteHasPlans(t *testing.T) {
	b := testBench(t)
	for _, name := range suiteNames() {
		plans := b.plans(name)
		if len(plans) == 0 {
			t.Errorf("%s has none", name)
		}
		for _, p := range plans {
			if len(p.trials) == 0 && len(p.table.Missing) == 0 {
				t.Errorf("%s: %s has neither rows nor a reason", name, p.table.Title)
			}
			if len(p.trials) > 0 && !slices.ContainsFunc(p.table.Rows, func(r *report.Row) bool { return r.Name == p.table.Reference }) && len(p.table.Missing) == 0 {
				t.Errorf("%s: %s has no row %q to compare with", name, p.table.Title, p.table.Reference)
			}
		}
	}
}
