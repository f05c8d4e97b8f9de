package browsertest

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestWork is a test that work grows with its input and not with the square of it. functions is an
// expression for an object of functions, each of which takes a size and returns a function that
// does the work, maybe with a promise. Sizes are such that the square takes seconds.
//
// Times are compared: the least of some runs at each size, so that a run that had to wait does not
// count. Four times the input takes four times as long, or sixteen times. A few milliseconds say
// nothing.
func TestWork(t *testing.T, b Browser, functions string) {
	t.Helper()
	var all map[string][2]float64
	if err := json.Unmarshal([]byte(b.Eval(fmt.Sprintf(`(async () => {
		const functions = await (%s)
		const all = {}
		for (const [name, prepare] of Object.entries(functions)) {
			const run = async (size, tries, enough) => {
				let least = Infinity
				for (let i = 0; i < tries && !(least <= enough); i++) {
					const work = prepare(size), begin = performance.now()
					await work()
					least = Math.min(least, performance.now() - begin)
				}
				return least
			}
			const few = await run(20000, 5, 1)
			all[name] = [few, await run(80000, 10, Math.max(20, 10 * few))]
		}
		return JSON.stringify(all)
	})()`, functions))), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("there are no functions")
	}
	for name, took := range all {
		if took[1] > 20 && took[1] > 10*took[0] {
			t.Errorf("%s: four times the input takes %.0f ms instead of %.0f", name, took[1], took[0])
		}
	}
}
