package sharetest_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/execbroker/execbroker/internal/sharetest"
)

// Subtests share few values, and none has one that another has not given up with all its cleanups.
func TestPool(t *testing.T) {
	type value struct{ users atomic.Int32 }
	made := 0
	pool := sharetest.New(func() *value { made++; return new(value) })
	for i := range 4 * made {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			v := pool.Take(t)
			t.Cleanup(func() { v.users.Add(-1) })
			if n := v.users.Add(1); n != 1 {
				t.Errorf("got a value of %d tests", n)
			}
		})
	}
	if made < 2 {
		t.Errorf("got %d values, want some", made)
	}
}
