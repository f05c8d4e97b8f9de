package main

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// A user who comes back gets the same variant, in every process, so the output is always the same.
func TestRun(t *testing.T) {
	var out strings.Builder
	stats, err := run(t.Context(), &out, 6)
	if err != nil {
		t.Fatal(err)
	}
	want := `user-0 on warm: 49995000
user-1 on warm: 49995000
user-2 on warm: 49995000
user-3 on cold: 49995000
user-4 on cold: 49995000
user-5 on cold: 49995000
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var runs int64
	for _, a := range stats.Arms {
		if a.Route != "pools" || a.Assigned != a.Backend || a.Creates != a.Runs[executor.StatusOK] || a.Create.Count != a.Creates {
			t.Errorf("got %+v", a)
		}
		runs += a.Runs[executor.StatusOK]
	}
	if len(stats.Arms) != 2 || runs != 6 || stats.Backends[1].Pools[0].Hits+stats.Backends[1].Pools[0].Misses == 0 {
		t.Errorf("got %+v", stats)
	}
}
