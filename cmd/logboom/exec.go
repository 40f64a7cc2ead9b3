package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func execCommand() *cobra.Command {
	var to toFile
	cmd := &cobra.Command{
		Use:   "exec --to PATH [flags] -- COMMAND [ARG...]",
		Short: "Run one command, its output to a file; exit with its exit status",
		Args:  cobra.MinimumNArgs(1),
	}
	to.add(cmd.Flags())
	cmd.Flags().SetInterspersed(false) // what follows the command is the command's
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		conf, err := to.config(cmd.Flags())
		if err != nil {
			return &exitError{exitUsage, err}
		}
		conf.Programs = []Program{{
			Name: "exec", Command: args, Lines: plainLines, StopSignal: unix.SIGTERM,
			Backoff: Backoff{Min: 1, Max: 1}, Autorestart: "false",
			WhenFull: WhenFull{Mode: Block}, Stdout: []string{"file"}, Stderr: []string{"file"},
			Severity: StreamSeverity{Stdout: info, Stderr: info},
		}}
		signals := make(chan os.Signal, 64)
		var ignored []os.Signal // as nohup(1) has it, for the command too
		for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
			if signal.Ignored(s) {
				ignored = append(ignored, s)
			}
		}
		for s := unix.Signal(1); s <= lastSignal; s++ {
			if passesOn(s) {
				signal.Notify(signals, s)
			}
		}
		for _, s := range ignored {
			signal.Ignore(s)
		}
		d, err := newPlainDaemon(conf, os.Stdin)
		if err != nil {
			return &exitError{exitFailed, err}
		}
		return d.exec(signals)
	}
	return cmd
}

// exec runs the only program that there is once. Signals go to it, not to us;
// those that come before it can have them wait.
func (d *daemon) exec(signals <-chan os.Signal) error {
	f := d.feeds["exec"]
	program := f.children[0]
	started := make(chan struct{})
	var status int
	var failed error // both are set before idle is closed
	f.runs = []func(<-chan struct{}) error{func(<-chan struct{}) error {
		status, failed = program.Exec(started)
		return nil
	}}
	d.start()
	select {
	case <-started:
	case <-d.idle:
	}
	for {
		select {
		case s := <-signals:
			program.Signal(s.(unix.Signal)) // fails if it has just ended
		case <-d.idle:
			return d.afterExec(status, failed, signals)
		}
	}
}

const lastSignal = 64 // of Linux, real-time ones included (signal(7))

// passesOn tells the signals that someone sent from those that are the
// runtime's own, or about our own descriptors and children, or a terminal's
// for all who use it.
func passesOn(s unix.Signal) bool {
	switch s {
	case unix.SIGURG, unix.SIGIO, unix.SIGCHLD, unix.SIGPIPE, unix.SIGXFSZ, unix.SIGTTIN, unix.SIGTTOU, unix.SIGTSTP:
		return false
	}
	return true
}

// afterExec flushes. The command's own status is the exit status unless the
// command succeeded and its output could not be delivered.
func (d *daemon) afterExec(status int, err error, signals <-chan os.Signal) error {
	flushed := d.flush(signals)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	if status == 0 {
		return flushed
	}
	return &exitError{Code: status, Err: flushed}
}
