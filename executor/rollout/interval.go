package rollout

import "math"

// Confidence is that of the intervals of a report.
const Confidence = .95

// z is the quantile of the normal distribution that belongs to Confidence.
const z = 1.959963984540054

// Rate is a part of a number, with an interval for the probability behind it. It is Wilson's score
// interval: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
// J. Am. Stat. Assoc. 22 (1927). It is for one look, and for events that are independent.
type Rate struct {
	Part  int64   `json:"part"`
	Of    int64   `json:"of"`
	Share float64 `json:"share"` // from 0 to 1; 0 if Of is 0
	Low   float64 `json:"low"`   // without events the interval is from 0 to 1
	High  float64 `json:"high"`
}

// NewRate returns the Rate of part events of so many.
func NewRate(part, of int64) Rate {
	r := Rate{Part: part, Of: of, High: 1}
	if of <= 0 {
		return r
	}
	n := float64(of)
	p := float64(part) / n
	middle, half := p+z*z/(2*n), z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	r.Share = p
	r.Low, r.High = max((middle-half)/(1+z*z/n), 0), min((middle+half)/(1+z*z/n), 1)
	if part == 0 { // without the rounding
		r.Low = 0
	}
	if part == of {
		r.High = 1
	}
	return r
}

// Ranks returns which of n sorted values, counted from 1, bound an interval for a quantile: that
// from the low-th to the high-th has it with a probability of at least Confidence, whatever the
// distribution is. How many values are below the quantile has a binomial distribution: H. A. David
// and H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1. A low of 0 and a high of n+1
// mean that n is too small to bound that end. It is for one look, and for independent values.
func Ranks(n int64, quantile float64) (low, high int64) {
	const tail = (1 - Confidence) / 2
	// Further away from the middle there is less than 1e-20.
	mean, far := float64(n)*quantile, 10*math.Sqrt(float64(n)*quantile*(1-quantile))+10
	from, to := max(int64(mean-far), 0), min(int64(mean+far), n)
	all, _ := math.Lgamma(float64(n) + 1)
	below := 0.0 // the probability that fewer than k values are below the quantile
	high = n + 1
	for k := from; k <= to; k++ {
		if below <= tail {
			low = k
		}
		if below >= 1-tail {
			return low, k
		}
		some, _ := math.Lgamma(float64(k) + 1)
		rest, _ := math.Lgamma(float64(n-k) + 1)
		below += math.Exp(all - some - rest + float64(k)*math.Log(quantile) + float64(n-k)*math.Log1p(-quantile))
	}
	return low, high
}

// Mean is the mean of amounts, with an interval. It is the normal approximation, which the central
// limit theorem supports for some hundreds of independent amounts. It is for one look.
type Mean struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// NewMean returns the Mean of so many amounts with a sum and a sum of squares.
func NewMean(count int64, sum, squares float64) Mean {
	m := Mean{Count: count}
	if count == 0 {
		return m
	}
	n := float64(count)
	m.Mean = sum / n
	m.Low, m.High = m.Mean, m.Mean
	if count > 1 {
		half := z * math.Sqrt(max(squares-sum*m.Mean, 0)/(n-1)/n)
		m.Low, m.High = max(m.Mean-half, 0), m.Mean+half
	}
	return m
}
