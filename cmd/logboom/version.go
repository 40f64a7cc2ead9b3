package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, as the build recorded it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version is the module's version, its commit if known, and Go's version.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "logboom (built without build info)"
	}
	return describe(info)
}

// describe words what a build recorded: a release has a version, a checkout
// its commit and whether it was modified.
func describe(info *debug.BuildInfo) string {
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	s := "logboom " + info.Main.Version
	if revision := settings["vcs.revision"]; revision != "" {
		s += " " + revision[:min(12, len(revision))]
	}
	if settings["vcs.modified"] == "true" {
		s += " modified"
	}
	return s + " " + info.GoVersion
}
