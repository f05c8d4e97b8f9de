package backends

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/rollout"
)

// TestTimes: quantiles and the ends of their intervals are those of the values, and at most 3 % to
// the outside.
func TestTimes(t *testing.T) {
	var h histogram
	for i := range 200 {
		h.add(time.Duration(i+1) * 10 * time.Millisecond)
	}
	got := h.times()
	near := func(name string, got, want, over, under float64) {
		if got > want*(1+over) || got < want*(1-under) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	low, high := rollout.Ranks(200, .5) // 86 and 115
	near("median", got.P50.Seconds, 1, .032, 0)
	near("low", got.P50.Low, float64(low)/100, 0, .032)
	near("high", got.P50.High, float64(high)/100, .032, 0)
	near("p95", got.P95.Seconds, 1.9, .032, 0)
	near("p99", got.P99.Seconds, 1.98, .032, 0)
	if got.Count != 200 || got.P95.High == 0 || got.P99.High != 0 || got.P99.Low >= got.P99.Seconds {
		t.Errorf("200 values bound the 95th percentile and not the 99th; got %+v", got)
	}
	if got := (&histogram{}).times(); got != (rollout.Times{}) {
		t.Errorf("got %+v of nothing", got)
	}
}

// TestHistogramText: what is written is read again, and nothing else is.
func TestHistogramText(t *testing.T) {
	var h, again histogram
	for _, d := range []time.Duration{-1, 0, 5 * time.Microsecond, time.Millisecond, time.Millisecond, time.Hour, math.MaxInt64} {
		h.add(d)
	}
	text, err := json.Marshal(&h)
	if err != nil || json.Unmarshal(text, &again) != nil || again != h || again.n != 7 {
		t.Errorf("got %s, %v", text, err)
	}
	for _, bad := range []string{`[-1,1]`, `[0,-1]`, `[1152,1]`, `[1151,1,0,1]`, `[9223372036854775807,1]`, `{}`, `[0.5,1]`} {
		if err := json.Unmarshal([]byte(bad), &again); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
