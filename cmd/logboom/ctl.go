package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

// orderCommands are the commands that tell a running daemon to do something,
// and end when it is done.
func orderCommands() []*cobra.Command {
	return []*cobra.Command{
		orderCommand("start NAME...", "Start programs or single processes (all: all of them) and wait until they are up", cobra.MinimumNArgs(1)),
		orderCommand("stop NAME...", "Stop programs and wait until they have ended", cobra.MinimumNArgs(1)),
		orderCommand("restart NAME...", "Stop programs, start them and wait until they are up", cobra.MinimumNArgs(1)),
		orderCommand("reload [NAME...]", "Reload programs by their reload_signal or reload_command; without a name, the daemon's config", cobra.ArbitraryArgs),
		orderCommand("reopen", "Write to the files as they are what was taken so far, then reopen them by name", cobra.NoArgs),
		orderCommand("flush", "Deliver what was taken so far now", cobra.NoArgs),
	}
}

func orderCommand(use, short string, args cobra.PositionalArgs) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		conf, err := Load(*path)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		return giveOrder(conf.RuntimeDir, cmd.Name(), names, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// giveOrder sends an order to the daemon and prints what comes of it, line by
// line as it is done. It waits as long as that takes: a program may have an
// hour to stop.
func giveOrder(runtimeDir, verb string, names []string, out, failures io.Writer) error {
	client := controlClient(runtimeDir)
	defer client.CloseIdleConnections()
	query := url.Values{"name": names}
	answer, err := client.Post("http://logboom/"+verb+"?"+query.Encode(), "", nil)
	if err != nil {
		return noDaemon(runtimeDir, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", verb, answer.Status)
	}
	failed := false
	for decoder := json.NewDecoder(answer.Body); ; {
		var o outcome
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF) && failed:
			return &exitError{Code: exitFailed}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the daemon has gone before it was done: %w", err)
		}
		to := out
		if o.Failed {
			failed, to = true, failures
		}
		fmt.Fprintf(to, "%s: %s\n", o.Name, o.Text)
	}
}
