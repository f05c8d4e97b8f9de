package tool_test

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

// TestDataDir tests the directory that models know: in code, in file names and in the definition.
// It exists if the backend has aliases, unless the options disable it.
func TestDataDir(t *testing.T) {
	const call = `{"code": "print(read(\"/mnt/data/a.txt\"), cwd())", "files": [{"name": "/mnt/data/a.txt", "content": "abc"}]}`
	without := fake.Without(fake.All(), executor.FeatureAliases)
	for name, c := range map[string]struct {
		backend fake.Options
		options tool.Options
		there   bool
	}{
		"default": {there: true},
		"none":    {options: tool.Options{Spec: executor.Spec{Aliases: []string{}}}},
		"other":   {options: tool.Options{Spec: executor.Spec{Aliases: []string{"/home/user"}}}},
		"lacking": {backend: fake.Options{Capabilities: without}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, c.backend, c.options, sessions.Options{}, func(w *world) {
				out := w.call("chat", call)
				if out.Success != c.there || c.there && out.Stdout != "abc /workspace\n" {
					w.Errorf("got %+v", out)
				}
				if told := strings.Contains(w.Definition().Description, "/mnt/data"); told != c.there {
					w.Errorf("got %q", w.Definition().Description)
				}
			})
		})
	}
}
