package tool_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/tool"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// golden compares v as JSON with a file.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestShapes(t *testing.T) {
	d := tool.Define(fake.All(), tool.Options{Packages: map[executor.Language][]string{executor.Python: {"numpy", "pandas"}}})
	golden(t, "schema.json", map[string]any{"input": d.Input, "output": d.Output})
	golden(t, "openai-function.json", d.OpenAIFunction())
	golden(t, "openai.json", d.OpenAI())
	golden(t, "openai-responses.json", d.OpenAIResponses())
	golden(t, "anthropic.json", d.Anthropic())
	golden(t, "gemini.json", d.Gemini())
	golden(t, "mcp.json", d.MCP())
}

// The definition does not offer what the backend cannot do.
func TestDefineFollowsTheBackend(t *testing.T) {
	python := fake.All(executor.Python)
	fast := fake.All()
	fast.MaxRun.WallTime = 10 * time.Second
	tests := map[string]struct {
		c         executor.Capabilities
		o         tool.Options
		languages []string
		inputs    []string
		says      string
		not       string
	}{
		"all": {
			c: fake.All(), languages: []string{"python", "javascript", "typescript", "bash"},
			inputs: []string{"code", "files", "language", "packages", "timeout"}, says: "no network", not: "do not stay",
		},
		"one-language": {c: python, languages: []string{"python", "bash"}, inputs: []string{"code", "files", "language", "packages", "timeout"}, not: "javascript"},
		"no-commands":  {c: fake.Without(python, executor.FeatureCommand), languages: []string{"python"}, inputs: []string{"code", "files", "language", "packages", "timeout"}, not: "bash"},
		"no-packages":  {c: fake.Without(python, executor.FeaturePackages), languages: []string{"python", "bash"}, inputs: []string{"code", "files", "language", "timeout"}},
		"no-files":     {c: fake.Without(python, executor.FeatureFiles), languages: []string{"python", "bash"}, inputs: []string{"code", "language", "packages", "timeout"}},
		"no-state":     {c: fake.Without(python, executor.FeatureState), languages: []string{"python", "bash"}, inputs: []string{"code", "files", "language", "packages", "timeout"}, says: "Variables do not stay"},
		"chosen": {
			c: fake.All(), o: tool.Options{Languages: []executor.Language{executor.JavaScript, "r"}, Packages: map[executor.Language][]string{}},
			languages: []string{"javascript", "typescript"}, inputs: []string{"code", "files", "language", "timeout"}, not: "python",
		},
		"network": {
			c: python, o: tool.Options{Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"data.example.org"}}}},
			languages: []string{"python", "bash"}, inputs: []string{"code", "files", "language", "packages", "timeout"}, says: "data.example.org", not: "no network",
		},
		"full-network": {
			c: python, o: tool.Options{Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}},
			languages: []string{"python", "bash"}, inputs: []string{"code", "files", "language", "packages", "timeout"}, not: "network",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := tool.Define(test.c, test.o)
			if got := d.Input.Properties["language"].Enum; !slices.Equal(got, test.languages) {
				t.Errorf("got languages %q, want %q", got, test.languages)
			}
			var inputs []string
			for name := range d.Input.Properties {
				inputs = append(inputs, name)
			}
			if slices.Sort(inputs); !slices.Equal(inputs, test.inputs) {
				t.Errorf("got inputs %q, want %q", inputs, test.inputs)
			}
			if !strings.Contains(d.Description, test.says) {
				t.Errorf("got description %q, want %q in it", d.Description, test.says)
			}
			if test.not != "" && strings.Contains(d.Description, test.not) {
				t.Errorf("got description %q, want no %q in it", d.Description, test.not)
			}
		})
	}
	if got := tool.Define(fast, tool.Options{}).Input.Properties["timeout"]; got.Maximum != 10 || got.Default != 10.0 {
		t.Errorf("got timeout %v to %v, want the 10 s of the backend", got.Default, got.Maximum)
	}
}
