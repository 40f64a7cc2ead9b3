package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Parse and validate the config; exit 0, or 2 with all that is wrong",
		Args:  cobra.NoArgs,
	}
	path := configFlag(cmd)
	print := cmd.Flags().Bool("print", false, "print the effective config, defaults included")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := Load(*path)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		out := []byte(*path + ": ok\n")
		if *print {
			out = appendConfig(nil, cfg)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s", out)
		return err
	}
	return cmd
}
