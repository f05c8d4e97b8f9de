package runner

import (
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Cells have commands here, whose output is the shell's, and an interrupt ends them with the cell.
func TestNotebookCells(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, impatient)
		for _, c := range []struct {
			name, code string
			want       outcome
		}{
			{"command", "x = 'a'\nprint('before')\n!echo {x}; echo b >&2", outcome{stdout: "before\na\n", stderr: "b\n"}},
			{"lines", "y = !echo a; echo b\ny", outcome{value: "['a', 'b']"}},
			{"script", "%%bash\nfor i in 1 2; do echo $i; done", outcome{stdout: "1\n2\n"}},
			{"script-fails", "%%bash\nexit 3", outcome{code: 1, exception: "CalledProcessError"}},
			{"indented", "    x = 1\n    x", outcome{value: "1"}},
			{"magic", "%matplotlib inline\n%frobnicate", outcome{code: 1, exception: "UsageError"}},
			{"state", "x", outcome{value: "1"}},
		} {
			t.Run(c.name, func(t *testing.T) { s.code(t, c.code).want(t, c.want) })
		}
		r := s.do(t.Context(), executor.Request{Language: executor.Python, Code: "!sleep 1000", Limits: executor.RunLimits{WallTime: time.Second}})
		if r.Reason != executor.ReasonWallTime || r.StateLost {
			t.Errorf("got %+v, want a timeout that keeps the variables", r.Exit)
		}
		s.gone(t, "sleep", "1000")
	})
}
