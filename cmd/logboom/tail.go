package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
)

func tailCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail [-n N] [-f] FILE",
		Short: "The last lines of a gzip, zstd or plain file, without reading the rest",
		Long: `The last lines of a gzip, zstd or plain file, found from its end; what comes
before them is not read.

With -f, then also what is appended, a whole member at a time. The name is
followed, as by tail -F: over a rename, a truncation, a new file.`,
		Args: cobra.ExactArgs(1),
	}
	n := cmd.Flags().Uint32P("lines", "n", 10, "how many lines")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what is appended")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return eachFile(cmd, args, exitFailed, func(name string) (bool, error) {
			if *follow {
				return true, tailFollow(cmd, name, int64(*n))
			}
			return tail(cmd, name, int64(*n))
		})
	}
	return cmd
}

// tail gives out the last n lines of a file.
func tail(cmd *cobra.Command, name string, n int64) (sound bool, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not block the open
	if err != nil {
		return false, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !stat.Mode().IsRegular() {
		return false, fmt.Errorf("%s: not a regular file", name)
	}
	sound = true
	err = gzipwriter.NewReader(f, stat.Size()).Tail(cmd.OutOrStdout(), n, func(d *gzipwriter.Damage) {
		sound = false
		cmd.PrintErrf("%s: %v\n", name, d)
	})
	return sound, named(name, err)
}

// tailFollow follows a file until the reader of standard output has gone.
func tailFollow(cmd *cobra.Command, name string, n int64) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if out, ok := cmd.OutOrStdout().(*os.File); ok {
		go untilHangup(out, cancel)
	}
	return gzipwriter.Follow(ctx, name, n, cmd.OutOrStdout(), func(err error) { cmd.PrintErrln(err) })
}

// untilHangup waits until nobody reads what is written to out: a file in which
// nothing happens would be followed for ever otherwise. It ends with the
// process at the latest.
func untilHangup(out *os.File, gone func()) {
	poll := []unix.PollFd{{Fd: int32(out.Fd())}} // errors and hang-ups come unasked
	for {
		_, err := unix.Poll(poll, -1)
		if err == nil {
			gone()
			return
		}
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
