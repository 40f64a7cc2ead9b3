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

	"logboom/gzipwriter"
)

// exitUnreadable is verify's code for a file that cannot be read.
const exitUnreadable = 2

func verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE…",
		Short: "Check files, and tell what they hold; exit 1 if torn or damaged, 2 if unreadable",
		Long: `Inflate gzip and zstd files and compare all checksums. A line for each gap,
torn tail or damage, then one that sums up. Times are in UTC.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return eachFile(cmd, files, exitUnreadable, func(name string) (bool, error) {
				return verify(cmd.OutOrStdout(), name)
			})
		},
	}
}

// findings is what verify has found in one file.
type findings struct {
	out  io.Writer
	name string

	members, messages, bytes, text int64
	ours                           int64
	first, last                    int64 // receive times, Unix ns
	dropped, gaps                  int64
	damages, lost                  int64
	torn                           bool
	lines                          gzipwriter.LineCounter
}

// verify reads a whole file and writes a line about each finding.
func verify(out io.Writer, name string) (sound bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r, err := reader(f)
	if err != nil {
		return false, err
	}
	v := findings{out: out, name: name, first: math.MaxInt64, last: math.MinInt64}
	if err := v.read(r); err != nil {
		return false, named(name, err)
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", name, v.sum(r.Format()))
	return v.damages == 0, err
}

// read walks over the members.
func (v *findings) read(r *gzipwriter.Reader) error {
	for {
		_, err := r.Next()
		if err == nil {
			var m gzipwriter.Member
			before := v.lines
			if m, err = r.Copy(&v.lines); err == nil {
				err = v.member(m)
			} else {
				v.lines = before // only what is whole is counted
			}
		}
		var damage *gzipwriter.Damage
		if errors.As(err, &damage) {
			err = v.damage(damage)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// member takes a whole member into the sums.
func (v *findings) member(m gzipwriter.Member) error {
	v.members++
	v.bytes += m.Length
	v.text += m.Text
	if m.Spoilt {
		v.damages++
		return v.tell(m.Offset, "damaged header: the text is whole, its times and messages are not known")
	}
	if !m.Ours {
		return nil
	}
	v.ours++
	v.messages += int64(m.Info.Messages)
	v.first = min(v.first, m.Info.First, m.Info.Last)
	v.last = max(v.last, m.Info.First, m.Info.Last)
	if m.Info.Dropped == 0 {
		return nil
	}
	v.gaps++
	v.dropped += int64(m.Info.Dropped)
	return v.tell(m.Offset, fmt.Sprintf("gap: %s dropped before %s", plural(int64(m.Info.Dropped), "message"), utc(m.Info.First)))
}

func (v *findings) damage(d *gzipwriter.Damage) error {
	v.damages++
	v.lost += d.Length
	kind := "damaged"
	if d.Tail {
		kind, v.torn = "torn tail", true
	}
	return v.tell(d.Offset, fmt.Sprintf("%s: %s: %v", kind, plural(d.Length, "byte"), d.Reason()))
}

func (v *findings) tell(offset int64, what string) error {
	_, err := fmt.Fprintf(v.out, "%s: at %d: %s\n", v.name, offset, what)
	return err
}

// sum is the last line about a file.
func (v *findings) sum(format gzipwriter.Format) string {
	if format == gzipwriter.Plain {
		return "plain, " + plural(v.lines.Lines(), "line")
	}
	parts := []string{
		format.String(), plural(v.members, "member"), plural(v.bytes, "byte"),
		plural(v.text, "byte") + " of text", plural(v.lines.Lines(), "line"),
	}
	if v.ours > 0 {
		parts = append(parts, plural(v.messages, "message"), utc(v.first)+" to "+utc(v.last))
		if others := v.members - v.ours; others > 0 {
			parts = append(parts, plural(others, "member")+" without times")
		}
	}
	if v.gaps > 0 {
		parts = append(parts, fmt.Sprintf("%d dropped in %s", v.dropped, plural(v.gaps, "gap")))
	}
	switch {
	case v.damages == 0:
		parts = append(parts, "whole")
	case v.torn && v.damages == 1:
		parts = append(parts, "torn: "+plural(v.lost, "byte")+" lost")
	default:
		parts = append(parts, fmt.Sprintf("damaged in %s: %s lost", plural(v.damages, "place"), plural(v.lost, "byte")))
	}
	return strings.Join(parts, ", ")
}

// plural is a number of things.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// utc is a time to the millisecond.
func utc(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000Z07:00") }
