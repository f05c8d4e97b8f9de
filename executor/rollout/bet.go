package rollout

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// stakes are the parts of the largest possible stake that are bet, each with an equal part of the
// initial wealth. The best one depends on the effect and its variance, which nobody knows
// beforehand.
var stakes = [...]float64{.04, .12, .3, .5, .75, .95}

// Bet is a test of the mean of numbers from -1 to 1: whether it is above a margin, or whether it is
// below. It has the logarithms of the wealth of each stake, which begins at 1. Its zero value has
// seen nothing.
type Bet struct{ Log [len(stakes)]float64 }

// MarshalJSON implements json.Marshaler. It rounds to what a decision can depend on.
func (b Bet) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, l := range b.Log {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendFloat(out, l, 'g', 7, 64)
	}
	return append(out, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler. A State has some hundred bets, so what MarshalJSON
// writes is read without package json.
func (b *Bet) UnmarshalJSON(p []byte) error {
	read, rest := Bet{}, strings.TrimPrefix(string(p), "[")
	for i := range read.Log {
		end := ","
		if i == len(read.Log)-1 {
			end = "]"
		}
		number, after, _ := strings.Cut(rest, end)
		l, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return json.Unmarshal(p, &b.Log)
		}
		read.Log[i], rest = l, after
	}
	if rest != "" {
		return json.Unmarshal(p, &b.Log)
	}
	*b = read
	return nil
}

// add bets on one number.
func (b *Bet) add(x, margin float64, up bool) {
	sign := 1.0
	if !up {
		sign = -1
	}
	// The factor must be positive for the worst number, which is -1 for up and 1 for down.
	most := 1 / (1 + sign*margin)
	for i, s := range stakes {
		b.Log[i] += math.Log1p(s * most * sign * (x - margin))
	}
}

// reaches reports whether the wealth of all stakes together has this logarithm, or more.
func (b *Bet) reaches(enough float64) bool {
	top := slices.Max(b.Log[:])
	if top < enough { // so is the mean of all
		return false
	}
	sum := 0.0
	for _, l := range b.Log {
		sum += math.Exp(l - top)
	}
	return top+math.Log(sum/float64(len(stakes))) >= enough
}

// margins are the ends that an interval may have.
var margins = [...]float64{
	-1, -.5, -.3, -.2, -.15, -.1, -.07, -.05, -.03, -.02, -.015, -.01, -.005, -.0025,
	0, .0025, .005, .01, .015, .02, .03, .05, .07, .1, .15, .2, .3, .5, 1,
}

// Interval is a confidence sequence for the mean: at any time it has the mean, with the probability
// that its Plan states, at all times together. Its ends are of a fixed list. Its zero value has
// seen nothing and reaches from -1 to 1.
type Interval struct {
	Above [len(margins)]Bet `json:"above"` // that the mean is above the margin
	Below [len(margins)]Bet `json:"below"`
	Low   int               `json:"low"`  // index of the largest margin that the mean is known to exceed
	High  int               `json:"high"` // likewise from the other end, counted from there
}

func (v *Interval) add(x, alpha float64) {
	enough := -math.Log(alpha / 2)
	for i, m := range margins {
		if i > v.Low && m < 1 {
			if v.Above[i].add(x, m, true); v.Above[i].reaches(enough) {
				v.Low = i
			}
		}
		if j := len(margins) - 1 - i; j > v.High && m > -1 {
			if v.Below[i].add(x, m, false); v.Below[i].reaches(enough) {
				v.High = j
			}
		}
	}
}

// Bounds returns the interval.
func (v *Interval) Bounds() (low, high float64) {
	return margins[v.Low], margins[len(margins)-1-v.High]
}
