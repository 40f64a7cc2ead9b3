package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"logboom/gzipwriter"
)

func repairCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "repair FILE…",
		Short: "Cut what is torn or damaged out of files; it is kept in FILE.torn",
		Long: `Cut a torn tail back to the last whole member. Where whole members follow a
damage, write them all into a new file that takes the name. What was cut is
appended to FILE.torn. A file that somebody is writing to is left alone.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return eachFile(cmd, files, exitFailed, func(name string) (bool, error) {
				return true, repair(cmd.OutOrStdout(), name)
			})
		},
	}
}

// repair makes one file whole, and says what that cost.
func repair(out io.Writer, name string) error {
	path, err := filepath.EvalSymlinks(name) // the file is replaced, not the link
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		err = errors.New("another writer has it")
	}
	if err != nil {
		return &os.PathError{Op: "lock", Path: name, Err: err}
	}
	pieces := 1
	// Repair looks at the end of a file, as the daemon does before it appends;
	// damage before that is found by inflating everything.
	cut, err := gzipwriter.Repair(f)
	if err == nil || errors.Is(err, gzipwriter.ErrUntouched) {
		tail := cut
		var more int
		cut, more, err = gzipwriter.Salvage(f)
		pieces = more
		if tail > 0 {
			cut, pieces = cut+tail, more+1
		}
	}
	if err != nil {
		return err
	}
	said := "whole"
	if cut > 0 {
		said = fmt.Sprintf("cut %s in %s, kept in %s.torn", plural(cut, "byte"), plural(int64(pieces), "piece"), path)
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", name, said)
	return err
}
