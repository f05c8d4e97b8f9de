package backends

import (
	"math/bits"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
)

// histogram counts durations in microseconds. Up to 64 each value has a bucket. From there on there
// are 32 buckets for each doubling, so that a bucket is at most 3 % wide. A histogram takes 9 KiB
// and covers a microsecond to twelve days.
type histogram struct {
	n       int64
	buckets [buckets]int64
}

const (
	steps   = 32
	octaves = 36
	buckets = steps * octaves
)

// bucket returns the index of a duration.
func bucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	shift := max(bits.Len64(us)-6, 0) // the rest of us is below 64
	return min(shift*steps+int(us>>shift), buckets-1)
}

// upper returns the largest duration of a bucket.
func upper(i int) time.Duration {
	shift := max(i/steps-1, 0)
	return time.Duration((uint64(i-shift*steps)+1)<<shift-1) * time.Microsecond
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.buckets[bucket(d)]++
}

// quantiles returns the durations that the given fractions do not exceed. The fractions must be in
// ascending order.
func (h *histogram) quantiles(parts ...float64) []driver.Duration {
	out := make([]driver.Duration, len(parts))
	var seen int64
	next := 0
	for i, n := range h.buckets {
		seen += n
		for next < len(parts) && n > 0 && float64(seen) >= parts[next]*float64(h.n) {
			out[next] = driver.Duration(upper(i))
			next++
		}
	}
	return out
}

func (h *histogram) latency() Latency {
	q := h.quantiles(.5, .95, .99)
	return Latency{Count: h.n, P50: q[0], P95: q[1], P99: q[2]}
}
