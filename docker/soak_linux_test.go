//go:build soak

package docker

import (
	"os"
	"strconv"
	"testing"
)

// TestSoakSessions makes 10,000 sessions, or as many as EXECBROKER_SOAK_SESSIONS says, and breaks the engine after every few hundred.
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
