package backends_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(asReplica); file != "" {
		fmt.Fprintln(os.Stderr, replica(file))
		os.Exit(1)
	}
	os.Exit(leaktest.Main(m))
}
