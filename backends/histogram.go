package backends

import (
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/rollout"
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

// quantile returns the duration that a part of the durations does not exceed.
func (h *histogram) quantile(part float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	return upper(h.at(int64(math.Ceil(part * float64(h.n)))))
}

func (h *histogram) latency() Latency {
	q := func(part float64) driver.Duration { return driver.Duration(h.quantile(part)) }
	return Latency{Count: h.n, P50: q(.5), P95: q(.95), P99: q(.99)}
}

// plus adds the counts of o, n times.
func (h *histogram) plus(o *histogram, n int64) {
	h.n += n * o.n
	for i, k := range &o.buckets {
		if k != 0 {
			h.buckets[i] += n * k
		}
	}
}

// at returns the bucket of the value with a rank, from 1.
func (h *histogram) at(rank int64) (i int) {
	for i, n := range &h.buckets {
		if rank -= n; rank <= 0 {
			return i
		}
	}
	return buckets - 1
}

// times returns the quantiles with their intervals.
func (h *histogram) times() rollout.Times {
	quantile := func(part float64) (q rollout.Quantile) {
		if h.n == 0 {
			return q
		}
		q.Seconds = h.quantile(part).Seconds()
		low, high := rollout.Ranks(h.n, part)
		if i := h.at(low); low > 0 && i > 0 {
			q.Low = upper(i - 1).Seconds()
		}
		if high <= h.n {
			q.High = upper(h.at(high)).Seconds()
		}
		return q
	}
	return rollout.Times{Count: h.n, P50: quantile(.5), P95: quantile(.95), P99: quantile(.99)}
}

// MarshalJSON writes pairs: how many empty buckets come first, and the count of the next one.
func (h *histogram) MarshalJSON() ([]byte, error) {
	pairs, skipped := []int64{}, int64(0)
	for _, n := range &h.buckets {
		if n == 0 {
			skipped++
			continue
		}
		pairs, skipped = append(pairs, skipped, n), 0
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *histogram) UnmarshalJSON(p []byte) error {
	var pairs []int64
	if err := json.Unmarshal(p, &pairs); err != nil {
		return err
	}
	*h = histogram{}
	at := int64(-1)
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		if pairs[0] < 0 || pairs[0] >= buckets || pairs[1] < 0 || at+1+pairs[0] >= buckets {
			return errors.New("not a histogram")
		}
		at += 1 + pairs[0]
		h.buckets[at] = pairs[1]
		h.n += pairs[1]
	}
	return nil
}

// moments are those of amounts, from which their mean and its interval follow.
type moments struct {
	Count   int64   `json:"count"`
	Sum     float64 `json:"sum"`
	Squares float64 `json:"squares"`
}

func (m *moments) add(x float64) { m.plus(moments{1, x, x * x}, 1) }

// plus adds o, n times.
func (m *moments) plus(o moments, n int64) {
	m.Count, m.Sum, m.Squares = m.Count+n*o.Count, m.Sum+float64(n)*o.Sum, m.Squares+float64(n)*o.Squares
}
