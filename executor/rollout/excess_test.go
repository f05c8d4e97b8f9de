package rollout

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestExcess compares with the example of Newcombe's paper, method 10: 56 of 70 and 48 of 80.
func TestExcess(t *testing.T) {
	e := NewExcess(56, 70, 48, 80)
	for _, c := range []struct{ got, want float64 }{{e.Share, .2}, {e.Low, .0524}, {e.High, .3339}} {
		if math.Abs(c.got-c.want) > 5e-5 {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	for _, c := range [][4]int64{{0, 0, 0, 0}, {5, 5, 0, 0}, {0, 0, 5, 5}} {
		if e := NewExcess(c[0], c[1], c[2], c[3]); e.Low != -1 || e.High != 1 {
			t.Errorf("%v: got %+v", c, e)
		}
	}
}

// TestExcessCovers: the interval has the truth in about 95 of 100 experiments, also where events
// are rare.
func TestExcessCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	count := func(n int64, p float64) (k int64) {
		for range n {
			if r.Float64() < p {
				k++
			}
		}
		return k
	}
	for _, c := range []struct {
		n, m int64
		p, q float64
	}{{200, 50, .02, .02}, {200, 50, .2, .1}, {30, 30, .9, .1}, {400, 100, .005, .005}} {
		hit := 0
		for range 2000 {
			if e := NewExcess(count(c.n, c.p), c.n, count(c.m, c.q), c.m); e.Low <= c.p-c.q && c.p-c.q <= e.High {
				hit++
			}
		}
		if hit < 1860 {
			t.Errorf("%+v: got %d of 2000", c, hit)
		}
	}
}
