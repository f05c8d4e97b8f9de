package browsertest

import (
	"encoding/json"
	"fmt"
	"testing"
)

// Sizes of the input of TestWork.
const (
	few  = 10_000
	many = 16 * few
)

// TestWork is a test that work grows with its input and not with the square of it. functions is an
// expression for an object of functions, each of which takes a size and returns a function that
// does the work, maybe with a promise. Sizes are such that the square takes seconds.
//
// What is compared is processor time of the page's thread, which does not count what other programs
// take: 16 times the input takes 16 times as much, or 256 times. A few milliseconds say nothing.
func TestWork(t *testing.T, p *Page, functions string) {
	t.Helper()
	p.Send("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, &struct{}{})
	var names []string
	if err := json.Unmarshal([]byte(p.Eval(fmt.Sprintf(`(async () => {
		window.functions = await (%s)
		return JSON.stringify(Object.keys(window.functions))
	})()`, functions))), &names); err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Error("there are no functions")
	}
	for i, name := range names {
		// The first time that a function runs, the engine compiles it.
		once := min(p.work(i, few), p.work(i, few), p.work(i, few))
		enough := max(0.02, 64*once)
		more := p.work(i, many)
		for try := 0; try < 2 && more > enough; try++ {
			more = min(more, p.work(i, many))
		}
		if more > enough {
			t.Errorf("%s: 16 times the input takes %.1f ms instead of %.1f", name, 1000*more, 1000*once)
		}
	}
}

// work returns the seconds of processor time that function i takes for an input of a size.
func (p *Page) work(i, size int) float64 {
	p.Helper()
	p.Eval(fmt.Sprintf("void (window.work = Object.values(window.functions)[%d](%d))", i, size))
	before := p.seconds()
	p.Eval("(async () => { await window.work() })()")
	return p.seconds() - before
}

// seconds returns the processor time of the page's thread so far.
func (p *Page) seconds() float64 {
	p.Helper()
	var r struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	p.Send("Performance.getMetrics", nil, &r)
	for _, m := range r.Metrics {
		if m.Name == "TaskDuration" {
			return m.Value
		}
	}
	p.Fatalf("the browser counts no TaskDuration: %v", r.Metrics)
	return 0
}
