package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and what this program was built with",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string   `json:"version"`
				Go       string   `json:"go"`
				Platform string   `json:"platform"`
				Types    []string `json:"types"` // types of backends
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, a.reg.Types()}
			if a.json {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.out, "execbroker %s, %s, %s\n", v.Version, v.Go, v.Platform)
			return err
		},
	}
}

// version returns the version of the module, with the commit if it was built from a working copy.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
