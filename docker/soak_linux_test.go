//go:build soak

package docker

import (
	"os"
	"strconv"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// TestSoakCut cuts the connection to the engine at each place of every step, for a moment and until
// after the failure.
func TestSoakCut(t *testing.T) {
	cutEverywhere(t, func(_ int, step string) (all []dockertest.Cut) {
		for _, w := range []dockertest.Where{dockertest.Before, dockertest.Middle, dockertest.After} {
			all = append(all, dockertest.Cut{Step: step, Where: w}, dockertest.Cut{Step: step, Where: w, Stays: true})
		}
		return all
	})
}

// TestSoakSessions makes 10,000 sessions, or as many as EXECBROKER_SOAK_SESSIONS says, and breaks
// the engine after every few hundred.
func TestSoakSessions(t *testing.T) {
	n := 10_000
	if s := os.Getenv("EXECBROKER_SOAK_SESSIONS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	const round = 250
	endure(t, max(1, n/round), round, 4)
}
