package rollout_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/executor/rollout"
)

// TestRate: the examples of R. G. Newcombe, "Two-sided confidence intervals for the single
// proportion", Stat. Med. 17 (1998), table I, method 3.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		part, of  int64
		low, high float64
	}{
		{81, 263, .2553, .3662}, {15, 148, .0624, .1605}, {0, 20, 0, .1611}, {1, 29, .0061, .1718}, {20, 20, .8389, 1}, {0, 0, 0, 1},
	} {
		got := rollout.NewRate(c.part, c.of)
		if math.Abs(got.Low-c.low) > 5e-5 || math.Abs(got.High-c.high) > 5e-5 || c.of > 0 && got.Share != float64(c.part)/float64(c.of) {
			t.Errorf("%d of %d: got %+v, want %v to %v", c.part, c.of, got, c.low, c.high)
		}
	}
}

// TestRanks: the ranks of the tables for the median, and the coverage of others by simulation.
func TestRanks(t *testing.T) {
	for _, c := range []struct {
		n         int64
		quantile  float64
		low, high int64
	}{
		{5, .5, 0, 6}, {6, .5, 1, 6}, {10, .5, 2, 9}, {20, .5, 6, 15}, {100, .5, 40, 61}, {20, .95, 17, 21}, {0, .5, 0, 1},
	} {
		if low, high := rollout.Ranks(c.n, c.quantile); low != c.low || high != c.high {
			t.Errorf("%v of %d: got %d to %d, want %d to %d", c.quantile, c.n, low, high, c.low, c.high)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int64{50, 400} {
		for _, quantile := range []float64{.5, .95, .99} {
			low, high := rollout.Ranks(n, quantile)
			hit := 0
			const tries = 4000
			for range tries {
				all := make([]float64, n)
				for i := range all {
					all[i] = r.Float64() // whose quantiles are their own values
				}
				slices.Sort(all)
				if (low == 0 || all[low-1] <= quantile) && (high > n || all[high-1] >= quantile) {
					hit++
				}
			}
			if part := float64(hit) / tries; part < .94 || part > .995 {
				t.Errorf("%v of %d, from %d to %d: right in %v", quantile, n, low, high, part)
			}
		}
	}
	if low, high := rollout.Ranks(100_000_000, .5); low < 49_990_000 || low > 49_990_400 || high != 100_000_001-low {
		t.Errorf("got %d to %d", low, high) // 50 million and 9800, by the normal distribution
	}
}

func TestMean(t *testing.T) {
	for _, c := range []struct {
		count        int64
		sum, squares float64
		want         rollout.Mean
	}{
		{0, 0, 0, rollout.Mean{}},
		{1, 3, 9, rollout.Mean{Count: 1, Mean: 3, Low: 3, High: 3}},
		{100, 200, 500, rollout.Mean{Count: 100, Mean: 2, Low: 1.80302, High: 2.19698}}, // a deviation of 1.00504
		{2, 1, 1, rollout.Mean{Count: 2, Mean: .5, High: 1.47998}},
	} {
		got := rollout.NewMean(c.count, c.sum, c.squares)
		if got.Count != c.want.Count || math.Abs(got.Mean-c.want.Mean)+math.Abs(got.Low-c.want.Low)+math.Abs(got.High-c.want.High) > 3e-5 {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}
