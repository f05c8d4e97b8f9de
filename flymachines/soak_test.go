//go:build soak

package flymachines

import (
	"os"
	"strconv"
	"testing"
)

// TestSoakCycles makes 1,000 sessions, or as many as EXECBROKER_SOAK_SESSIONS says, while faults
// happen at random.
func TestSoakCycles(t *testing.T) {
	n := 1000
	if s := os.Getenv("EXECBROKER_SOAK_SESSIONS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	cycles(t, n, 4)
}
