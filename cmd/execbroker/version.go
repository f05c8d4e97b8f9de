package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/module"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and its date, and what this program was built with",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			o := originOf(info)
			v := struct {
				origin
				Go       string   `json:"go"`
				Platform string   `json:"platform"`
				Types    []string `json:"types"` // types of backends
			}{o, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, a.reg.Types()}
			return a.answer(v, true, func(w io.Writer) {
				fmt.Fprintf(w, "execbroker %s, %s, %s\n", v.Version, v.Go, v.Platform)
				if v.Commit != "" {
					fmt.Fprintf(w, "commit %s%s\n", v.Commit, map[bool]string{true: ", with changes"}[v.Modified])
				}
				if v.Date != nil {
					fmt.Fprintf(w, "of %s\n", v.Date.Format(time.RFC3339))
				}
			})
		},
	}
}

// origin says which source a program was built from.
type origin struct {
	Version  string     `json:"version"`            // of the module; "(devel)" if it is not known
	Commit   string     `json:"commit,omitempty"`   // its hash, or the beginning of it
	Date     *time.Time `json:"date,omitempty"`     // of the commit
	Modified bool       `json:"modified,omitempty"` // the source had changes that were not committed
}

// originOf reads what the Go command has written into a program. A program that was built in a
// working copy has the commit. One that was installed from a module proxy has the version, and the
// commit only if the version names one.
func originOf(info *debug.BuildInfo) origin {
	if info == nil {
		return origin{Version: develVersion}
	}
	o := origin{Version: cmp.Or(info.Main.Version, develVersion)}
	if t, err := module.PseudoVersionTime(o.Version); err == nil {
		o.Date = &t
		o.Commit, _ = module.PseudoVersionRev(o.Version) // it has one, because it has a time
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			o.Commit = s.Value
		case "vcs.time":
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				o.Date = &t
			}
		case "vcs.modified":
			o.Modified = s.Value == "true"
		}
	}
	return o
}

// develVersion is the version of a program whose build was not told one.
const develVersion = "(devel)"

// version returns the version of the module, with the commit if it was built from a working copy.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return originOf(info).Version
}
