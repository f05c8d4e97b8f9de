package main

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages of all commands to a directory",
		Long: `Write the manual pages of all commands to a directory, which is made if it does not
exist. Packages of the system bring these pages.`,
		Example: "  execbroker man ~/.local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return usage("%w", err)
			}
			info, _ := debug.ReadBuildInfo()
			o := originOf(info)
			date := time.Unix(0, 0).UTC() // so that the same program always writes the same
			if o.Date != nil {
				date = o.Date.UTC()
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if err := doc.GenManTree(root, &doc.GenManHeader{Date: &date, Source: "execbroker " + o.Version, Manual: "execbroker"}, args[0]); err != nil {
				return usage("%w", err)
			}
			return nil
		},
	}
}
