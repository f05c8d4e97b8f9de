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
	p, q := float64(k)/float64(n), float64(l)/float64(m)
	pl, ph := wilson(p, float64(n))
	ql, qh := wilson(q, float64(m))
	return Excess{
		Share: p - q,
		Low:   max(p-q-math.Hypot(p-pl, qh-q), -1),
		High:  min(p-q+math.Hypot(ph-p, q-ql), 1),
	}
}

// wilson returns the 95 % score interval of a share p of n observations.
func wilson(p, n float64) (low, high float64) {
	const z = 1.959964
	mid := p + z*z/(2*n)
	half := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max((mid-half)/(1+z*z/n), 0), min((mid+half)/(1+z*z/n), 1)
}
