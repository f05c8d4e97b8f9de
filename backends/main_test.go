package backends_test

import (
	"os"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
