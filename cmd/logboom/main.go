// Command logboom ships log lines: it takes them from programs as fast as
// they are written, gathers them in memory and delivers them in batches.
package main

import (
	"errors"
	"fmt"
	"os"
	_ "time/tzdata" // a container may hold nothing but this binary

	"github.com/spf13/cobra"
)

// Exit codes of every command, but for exec, which passes on its child's.
const (
	exitFailed      = 1
	exitUsage       = 2 // of the command line or the config
	exitUndelivered = 3 // stopped with messages undelivered
)

// exitError ends the process with a code. Err is printed unless it is nil.
// A command's RunE may return one; its other errors are exitFailed.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

func main() { os.Exit(execute(rootCommand())) }

// execute runs the command line, prints its error and returns the exit code.
func execute(root *cobra.Command) int {
	err := root.Execute()
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		// No command ran: the command line is wrong.
		exit = &exitError{exitUsage, fmt.Errorf("%w\nsee logboom --help", err)}
	}
	if exit.Err != nil {
		fmt.Fprintln(root.ErrOrStderr(), exit.Err)
	}
	return exit.Code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "logboom",
		Short:         "Take log lines as fast as they are written, ship them in batches",
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return errors.New("name a command") },
	}
	for _, c := range append(orderCommands(), importSupervisorCommand(),
		runCommand(), checkCommand(), pipeCommand(), execCommand(), recoverCommand(), statusCommand(), versionCommand(),
		catCommand(), tailCommand(), verifyCommand(), repairCommand(),
	) {
		run := c.RunE
		c.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			var exit *exitError
			if err != nil && !errors.As(err, &exit) {
				err = &exitError{exitFailed, err}
			}
			return err
		}
		root.AddCommand(c)
	}
	return root
}

// configFlag adds -c to a command. Its value is the path of the config file.
func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", defaultConfigPath("/etc/logboom/conf.toml"), "config file")
}

// defaultConfigPath is the system's config file if there is one, else the one
// in the working directory.
func defaultConfigPath(system string) string {
	if _, err := os.Stat(system); err == nil {
		return system
	}
	return "conf.toml"
}
