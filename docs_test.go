package execbroker_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// Every configuration in the documentation is right. What begins with another key than backends is
// a part of one.
func TestConfigurationsInTheDocumentation(t *testing.T) {
	guides, err := filepath.Glob("docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	incidents, err := filepath.Glob("docs/guides/incidents/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob("examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	check := func(file, text string) {
		if !strings.Contains(text, "backends:") {
			return
		}
		checked++
		cfg, err := backends.Parse([]byte(text))
		if err := errors.Join(err, cfg.Check(all.Registry())); err != nil {
			t.Errorf("%s: %v\n%s", file, err, text)
		}
	}
	for _, file := range slices.Concat(guides, incidents, []string{"README.md"}) {
		for _, m := range yamlBlock.FindAllStringSubmatch(text(t, file), -1) {
			check(file, m[1])
		}
	}
	for _, file := range examples {
		check(file, text(t, file))
	}
	if checked < 8 {
		t.Errorf("only %d configurations were found", checked)
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
