package helm

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/deploy/helm/helmtest"
)

// guide is docs/guides/helm.md.
type guide struct {
	*testing.T
	text string
}

func readGuide(t *testing.T) guide {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/helm.md")
	if err != nil {
		t.Fatal(err)
	}
	return guide{t, string(text)}
}

var (
	consoleBlock = regexp.MustCompile("(?m)^```console\n((?s:.*?))^```$")
	yamlBlock    = regexp.MustCompile("(?m)^```yaml\n((?s:.*?))^```$")
)

// section returns the text below a heading.
func (g guide) section(heading string) string {
	g.Helper()
	_, text, ok := strings.Cut(g.text, "\n## "+heading+"\n")
	if !ok {
		g.Fatalf("the guide has no section %s", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// commands returns the commands of a section, each in a line.
func (g guide) commands(heading string) string {
	g.Helper()
	var b strings.Builder
	for _, m := range consoleBlock.FindAllStringSubmatch(g.section(heading), -1) {
		for line := range strings.Lines(strings.ReplaceAll(m[1], "\\\n", "")) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				b.WriteString(command)
			}
		}
	}
	if b.Len() == 0 {
		g.Fatalf("section %s has no commands", heading)
	}
	return b.String()
}

// file returns the block that is a file.
func (g guide) file(name string) string {
	g.Helper()
	for _, m := range yamlBlock.FindAllStringSubmatch(g.text, -1) {
		if strings.HasPrefix(m[1], "# "+name+"\n") {
			return m[1]
		}
	}
	g.Fatalf("the guide has no file %s", name)
	return ""
}

// TestGuide has values that the chart takes.
func TestGuide(t *testing.T) {
	g := readGuide(t)
	if text, err := helmtest.Template(t, chart, g.file("values.yaml")); err != nil {
		t.Errorf("%v%s", err, text)
	}
}
