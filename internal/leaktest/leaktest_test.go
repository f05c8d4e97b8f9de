package leaktest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

func TestOthers(t *testing.T) {
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { defer close(done); stay(begun, end) }()
	<-begun
	seen := func() bool {
		for _, s := range leaktest.Others() {
			if strings.Contains(s, "leaktest_test.stay") {
				return true
			}
		}
		return false
	}
	if !seen() {
		t.Error("got nothing, want the goroutine that stays")
	}
	close(end)
	<-done
}

func stay(begun, end chan struct{}) {
	close(begun)
	<-end
}
