package decimal_test

import (
	"testing"

	"github.com/execbroker/execbroker/internal/decimal"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte("5.04e-02"), 6)
	f.Add([]byte(`"0.0504"`), 12)
	f.Fuzz(func(t *testing.T, p []byte, places int) {
		places &= 15
		if n, err := decimal.Parse(p, places); err == nil && n < 0 {
			t.Errorf("%q: got %d", p, n)
		}
	})
}
