// Command bench compares logboom with the programs that stand in its place
// today, and with the least that such a program must cost. README.md says how
// to run it and how to read it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"logboom/bench/report"
)

func main() {
	if len(os.Args) > 1 {
		// Parts of the work that need a process of their own.
		switch os.Args[1] {
		case writeCommand:
			exit(writeLines(os.Args[2:]))
		case floorCommand:
			exit(goFloor(os.Args[2:]))
		}
	}
	exit(run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// settings are what the command line asks for.
type settings struct {
	rounds  int
	length  time.Duration // of one measurement
	rates   []int         // of the suites udp and unix, messages a second
	rows    *regexp.Regexp
	logboom string // path of the binary
	picture string // path of the SVG
	suites  []string
}

func parseSettings(arguments []string) (settings, error) {
	s := settings{rates: []int{20_000, 50_000, 100_000, 200_000}, rows: regexp.MustCompile("")}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: bench [flags] [suite ...]\nsuites: %s (all, unless named)\n", strings.Join(suiteNames(), " "))
		flags.PrintDefaults()
	}
	flags.IntVar(&s.rounds, "n", 5, "rounds; in each of them every row is measured once")
	flags.DurationVar(&s.length, "d", 5*time.Second, "length of one measurement")
	flags.StringVar(&s.logboom, "logboom", "bin/logboom", "the `binary` to measure")
	flags.StringVar(&s.picture, "svg", "bench.svg", "`file` of the picture")
	flags.Func("rates", "messages a second of udp and unix, comma separated (default 20000,50000,100000,200000)", func(text string) error {
		var err error
		s.rates, err = parseRates(text)
		return err
	})
	flags.Func("rows", "measure only rows whose name matches `regexp` (default all)", func(text string) error {
		var err error
		s.rows, err = regexp.Compile(text)
		return err
	})
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	s.suites = flags.Args()
	if len(s.suites) == 0 {
		s.suites = suiteNames()
	}
	for _, name := range s.suites {
		if !slices.Contains(suiteNames(), name) {
			return s, fmt.Errorf("no suite %q; there are %s", name, strings.Join(suiteNames(), ", "))
		}
	}
	if s.rounds < 1 || s.length < time.Second {
		return s, fmt.Errorf("at least one round (-n) of at least a second (-d)")
	}
	return s, nil
}

// parseRates reads numbers like "20000,50000".
func parseRates(text string) ([]int, error) {
	var rates []int
	for part := range strings.SplitSeq(text, ",") {
		rate, err := strconv.Atoi(part)
		if err != nil || rate < 1 {
			return nil, fmt.Errorf("%q is no rate", part)
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// run measures the suites that were asked for and prints what it found.
func run() error {
	s, err := parseSettings(os.Args[1:])
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	raiseFileLimit()
	b, err := newBench(ctx, s)
	if err != nil {
		return err
	}
	defer b.close()
	var tables []*report.Table
	for _, name := range s.suites {
		measured, err := b.measure(ctx, name, b.plans(name))
		for _, table := range measured {
			if err := table.Markdown(os.Stdout); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		tables = append(tables, measured...)
	}
	if err := drawPicture(s.picture, b.machine(), tables); err != nil {
		return err
	}
	if b.failed > 0 {
		return fmt.Errorf("%d of %d measurements failed", b.failed, b.measured)
	}
	return nil
}

// raiseFileLimit lets the programs that we start have as many files as the
// system allows: a thousand connections or a thousand logs.
func raiseFileLimit() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = min(limit.Max, 65536)
		_ = syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Cur, Max: limit.Max})
	}
}

// drawPicture writes the SVG in one piece, so that a reader of an older one
// never sees half of it.
func drawPicture(path, machine string, tables []*report.Table) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".bench-*.svg")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails once it is renamed
	err = report.Picture(file, "logboom, its peers, and the floor", machine, tables)
	if err == nil {
		err = file.Chmod(0o644)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("picture: %w", err)
	}
	return os.Rename(file.Name(), path)
}
