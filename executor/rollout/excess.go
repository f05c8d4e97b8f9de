package rollout

import "math"

// Excess is by how much more often something happens to the first of two groups than to the
// second: a difference of two shares.
type Excess struct {
	Share float64 `json:"share"` // from -1 to 1
	// Low and High are the interval that contains the true difference in 95 of 100 cases. Without
	// observations of both groups it is everything.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// NewExcess compares k of n with l of m. The interval is Newcombe's, from the scores of the two
// shares: unlike the normal approximation it holds where something has never happened yet.
func NewExcess(k, n, l, m int64) Excess {
	if n <= 0 || m <= 0 {
		return Excess{Low: -1, High: 1}
	}
	a, b := NewRate(k, n), NewRate(l, m)
	return Excess{
		Share: a.Share - b.Share,
		Low:   max(a.Share-b.Share-math.Hypot(a.Share-a.Low, b.High-b.Share), -1),
		High:  min(a.Share-b.Share+math.Hypot(a.High-a.Share, b.Share-b.Low), 1),
	}
}
