// Package waittest waits for conditions in tests. A test that waits for a time instead is slow, or
// wrong on a busy machine. In virtual time neither is needed: see testing/synctest.
package waittest

import (
	"testing"
	"time"
)

// patience is far beyond what a condition may take on a machine that has much else to do.
const patience = 2 * time.Minute

// Until calls f until it returns nil, at first every millisecond, and less and less often. After
// two minutes it ends the test with the last error.
func Until(tb testing.TB, what string, f func() error) {
	tb.Helper()
	end := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		<-time.After(pause)
	}
}
