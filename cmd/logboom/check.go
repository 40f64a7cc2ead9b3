package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// checkCommand is Load and its errors. It opens no socket, makes no file and
// starts nothing, so it can be run beside the daemon, and before a reload.
func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Parse and validate the config; exit 0, or 2 with all that is wrong",
		Args:  cobra.NoArgs,
	}
	path := configFlag(cmd)
	effective := cmd.Flags().Bool("print", false, "print the effective config, with defaults and with what ${env:} and ${file:} insert")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := Load(*path)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		out := []byte(*path + ": ok\n")
		if *effective {
			out = appendConfig(nil, cfg)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s", out)
		return err
	}
	return cmd
}
