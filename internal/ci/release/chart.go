package release

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// chartDir has the chart, whose name is that of its directory.
const chartDir = "deploy/helm/execbroker"

// chartVersions are the lines of the chart that say its version and that of what it installs.
var chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chart packs the chart of Helm. It has the version of the release, and by default the image of the
// release. What helm package makes has the time of the day in it.
func (m *maker) chart() error {
	dir := filepath.Join(m.root, filepath.FromSlash(chartDir))
	name := filepath.Base(dir)
	all := nodes{}
	if err := all.addTree(dir, name); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	if n := len(chartVersions.FindAll(text, -1)); n != 2 {
		return fmt.Errorf("%s/Chart.yaml: has %d lines with a version, want those of version and appVersion", chartDir, n)
	}
	all[name+"/Chart.yaml"] = node{text: chartVersions.ReplaceAllString(string(text), "${1}: "+m.version), mode: 0o644}
	return create(filepath.Join(m.out, m.chartFile()), func(w io.Writer) error { return writeTarGz(w, all, m.source.date) })
}

// chartFile is the name that Helm gives to the package.
func (m *maker) chartFile() string { return filepath.Base(chartDir) + "-" + m.version + ".tgz" }
