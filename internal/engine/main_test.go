package engine_test

import (
	"os"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

// TestMain fails if a goroutine is left when all tests have ended: no call may leave one behind.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
