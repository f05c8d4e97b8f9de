package report

import (
	"math"
	"strconv"

	"github.com/execbroker/execbroker/executor/rollout"
)

// The sizes of a plot, in units of its view box.
const (
	plotWidth = 640
	plotLeft  = 190 // where the axis begins
	plotRight = 620
	lineTall  = 22
	colours   = 4 // of the page; more arms have the same again
)

// plot has values with their intervals, one below the other.
type plot struct {
	Title         string
	Width, Height int
	Left, Right   float64
	Ticks         []tick
	Lines         []line
}

type tick struct {
	X    float64
	Text string
}

// line is a value with its interval.
type line struct {
	Label, Value string
	Arm          int // for its colour and its mark
	Y            int
	X, Low, High float64
	Open         bool // High is where the plot ends, not the interval
}

// value is what a line shows.
type value struct {
	label, text    string
	arm            int
	at, low, high  float64
	known, endless bool // endless: high is not known
}

// newPlot places values on an axis from low to high, which is logarithmic or not.
func newPlot(title string, values []value, ticks []float64, name func(float64) string, log bool) (p plot) {
	scale := func(v float64) float64 { return v }
	if log {
		scale = func(v float64) float64 { return math.Log(max(v, 1e-6)) }
	}
	first, last := scale(ticks[0]), scale(ticks[len(ticks)-1])
	x := func(v float64) float64 {
		part := (scale(v) - first) / (last - first)
		return math.Round(10*(plotLeft+min(max(part, 0), 1)*(plotRight-plotLeft))) / 10
	}
	p = plot{Title: title, Width: plotWidth, Left: plotLeft, Right: plotRight}
	for _, t := range ticks {
		p.Ticks = append(p.Ticks, tick{x(t), name(t)})
	}
	y := lineTall
	for _, v := range values {
		if !v.known {
			continue
		}
		l := line{Label: v.label, Value: v.text, Arm: v.arm % colours, Y: y, X: x(v.at), Low: x(v.low), High: x(v.high), Open: v.endless}
		if v.endless {
			l.High = plotRight
		}
		p.Lines = append(p.Lines, l)
		y += lineTall
	}
	p.Height = y + lineTall
	return p
}

// plots are those of an experiment that have something to show.
func plots(x rollout.Experiment) (all []plot) {
	var shares, times, costs []value
	for i, a := range x.Arms {
		for _, r := range []struct {
			name string
			rollout.Rate
		}{{"sessions", a.Success}, {"turns", a.Answered}, {"code", a.Code}} {
			shares = append(shares, value{r.name + ", " + shorten(a.Backend), rate(r.Rate), i, r.Share, r.Low, r.High, r.Of > 0, false})
		}
		m := a.SessionCost
		costs = append(costs, value{shorten(a.Backend), mean(m), i, m.Mean, m.Low, m.High, m.Count > 0 && m.High > 0, false})
	}
	for _, k := range []struct {
		name string
		of   func(rollout.Arm) rollout.Times
	}{{"cold", func(a rollout.Arm) rollout.Times { return a.Cold }}, {"warm", func(a rollout.Arm) rollout.Times { return a.Warm }}} {
		for _, q := range []struct {
			name string
			of   func(rollout.Times) rollout.Quantile
		}{
			{"p50", func(t rollout.Times) rollout.Quantile { return t.P50 }},
			{"p95", func(t rollout.Times) rollout.Quantile { return t.P95 }},
			{"p99", func(t rollout.Times) rollout.Quantile { return t.P99 }},
		} {
			for i, a := range x.Arms {
				t := k.of(a)
				v := q.of(t)
				times = append(times, value{k.name + " " + q.name + ", " + shorten(a.Backend), quantile(t, v), i, v.Seconds, v.Low, v.High, t.Count > 0, v.High == 0})
			}
		}
	}
	if low, _, ok := span(shares); ok {
		all = append(all, newPlot("Success: sessions, answered turns, turns without a failure of the code", shares, linear(math.Floor(low*20)/20, 1), percent, false))
	}
	if low, high, ok := span(times); ok {
		all = append(all, newPlot("Cold starts and warm runs", times, decades(low, high), seconds, true))
	}
	if _, high, ok := span(costs); ok {
		all = append(all, newPlot("Mean cost of a session", costs, linear(0, high), func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }, false))
	}
	return all
}

// span returns the smallest and the largest end of the intervals that are known.
func span(values []value) (low, high float64, ok bool) {
	low = math.Inf(1)
	for _, v := range values {
		if v.known {
			low, high, ok = min(low, v.low), max(high, v.high, v.at), true
		}
	}
	return low, high, ok
}

// linear returns five ticks.
func linear(low, high float64) (ticks []float64) {
	if high <= low {
		low = high - 1
	}
	for i := range 5 {
		ticks = append(ticks, low+(high-low)*float64(i)/4)
	}
	return ticks
}

// decades returns ticks at powers of ten that contain low and high, from a microsecond to a month.
func decades(low, high float64) (ticks []float64) {
	from := math.Floor(math.Log10(min(max(low, 1e-6), 1e6)))
	to := math.Ceil(math.Log10(min(max(high, 1e-6), 1e7)))
	for e := from; e <= max(to, from+1); e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	return ticks
}

// shorten makes a name fit beside a plot.
func shorten(s string) string {
	if r := []rune(s); len(r) > 16 {
		return string(r[:15]) + "…"
	}
	return s
}
