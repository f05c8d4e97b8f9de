package pyodide

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// With and without a layer, the process reads what Deno has stored about the host program. If Deno
// could not open the files, it would silently analyse and compile the program at each start.
func TestAnalysisIsRead(t *testing.T) {
	t.Parallel()
	for _, m := range layersHere() {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			s := create(t, open(t, Config{OSLayer: string(m)}), executor.Spec{})
			fds := fmt.Sprintf("/proc/%d/fd", deno(t, s))
			entries, err := os.ReadDir(fds)
			if err != nil {
				t.Skipf("this user cannot see the files of the process: %v", err)
			}
			var files []string
			for _, e := range entries {
				if to, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil {
					files = append(files, filepath.Base(to))
				}
			}
			for _, want := range []string{"dep_analysis_cache_v2", "v8_code_cache_v2"} {
				if !slices.Contains(files, want) {
					t.Errorf("%s is not open; open are %q", want, files)
				}
			}
		})
	}
}
