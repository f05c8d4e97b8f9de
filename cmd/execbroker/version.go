package main

import (
	"fmt"
	"io"
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
			return a.answer(v, true, func(w io.Writer) { fmt.Fprintf(w, "execbroker %s, %s, %s\n", v.Version, v.Go, v.Platform) })
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
