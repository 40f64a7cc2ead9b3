package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
)

func catCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cat [--since T] [--until T] [FILE…]",
		Short: "Text of gzip, zstd and plain files, by the time that it was received",
		Long: `Text of gzip, zstd and plain files, one after the other; of standard input
where FILE is - or there is none. What is damaged is left out, and told.

T is RFC 3339 (2026-03-15T10:00:00Z), a time of today (10:00, 10:00:30), or
before now (-5m, -2h, -1d). The members of logboom tell when their messages
were received: those that meet the window are given out whole, the others are
hopped over. What tells no time is given out.`,
	}
	since := cmd.Flags().String("since", "", "leave out members that ended before T")
	until := cmd.Flags().String("until", "", "leave out members that began after T")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		w, err := parseWindow(*since, *until, time.Now())
		if err != nil {
			return &exitError{exitUsage, err}
		}
		if len(files) == 0 {
			files = []string{"-"}
		}
		return eachFile(cmd, files, exitFailed, func(name string) (bool, error) { return w.cat(cmd, name) })
	}
	return cmd
}

// eachFile does the same for each file, and goes on after one that fails: then
// the exit code is at least the one named. Sound is false for a file in which
// something is damaged: then it is exitFailed at least. A standard output that
// nobody reads any more ends it all, quietly.
func eachFile(cmd *cobra.Command, files []string, failed int, do func(name string) (sound bool, err error)) error {
	code := 0
	for _, name := range files {
		sound, err := do(name)
		if errors.Is(err, unix.EPIPE) {
			return nil
		}
		switch {
		case err != nil:
			code = max(code, failed)
			cmd.PrintErrln(err)
		case !sound:
			code = max(code, exitFailed)
		}
	}
	if code == 0 {
		return nil
	}
	return &exitError{Code: code}
}

// window is a range of receive times, both ends included.
type window struct{ since, until int64 } // Unix ns

// parseWindow reads --since and --until. An empty one is no bound.
func parseWindow(since, until string, now time.Time) (window, error) {
	w := window{math.MinInt64, math.MaxInt64}
	for _, bound := range []struct {
		flag, value string
		to          *int64
	}{{"--since", since, &w.since}, {"--until", until, &w.until}} {
		if bound.value == "" {
			continue
		}
		t, err := parseTime(bound.value, now)
		if err != nil {
			return w, fmt.Errorf("%s: %w", bound.flag, err)
		}
		*bound.to = t.UnixNano()
	}
	if w.since > w.until {
		return w, fmt.Errorf("--since %s is after --until %s", since, until)
	}
	return w, nil
}

// parseTime reads RFC 3339, a time of day of now's day and zone, or a time
// before now.
func parseTime(s string, now time.Time) (time.Time, error) {
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		var d Duration
		if err := d.UnmarshalText([]byte(ago)); err != nil {
			return time.Time{}, err
		}
		return now.Add(-time.Duration(d)), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			y, m, d := now.Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location()), nil
		}
	}
	return time.Time{}, fmt.Errorf(`%q is no time: want RFC 3339, a time of today as in "10:00", or a time before now as in "-5m"`, s)
}

// meets says whether a member may hold a message of the window. The clock may
// have been set back meanwhile, so its last message can be the older one.
func (w *window) meets(m gzipwriter.Member) bool {
	if !m.Ours {
		return true // it tells no times
	}
	first, last := min(m.Info.First, m.Info.Last), max(m.Info.First, m.Info.Last)
	return first <= w.until && last >= w.since
}

// cat gives out what of a file meets the window.
func (w *window) cat(cmd *cobra.Command, name string) (sound bool, err error) {
	f, r, err := openText(cmd, name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sound = true
	err = r.CopyText(cmd.OutOrStdout(), w.meets, func(d *gzipwriter.Damage) {
		sound = false
		cmd.PrintErrf("%s: %v\n", name, d)
	})
	return sound, named(name, err)
}

// openText opens a file to be read; - is standard input.
func openText(cmd *cobra.Command, name string) (io.Closer, *gzipwriter.Reader, error) {
	if name == "-" {
		f, ok := cmd.InOrStdin().(*os.File)
		if !ok {
			return io.NopCloser(nil), gzipwriter.NewStreamReader(cmd.InOrStdin()), nil
		}
		r, err := reader(f)
		return io.NopCloser(nil), r, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	r, err := reader(f)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, r, nil
}

// reader reads f as what it is: a file from its beginning, anything else as a
// stream.
func reader(f *os.File) (*gzipwriter.Reader, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if stat.Mode().IsRegular() {
		return gzipwriter.NewReader(f, stat.Size()), nil
	}
	return gzipwriter.NewStreamReader(f), nil
}

// named adds the file's name to an error that lacks one.
func named(name string, err error) error {
	var path *os.PathError
	if err == nil || errors.As(err, &path) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
