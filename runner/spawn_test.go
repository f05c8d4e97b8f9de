package runner

import "testing"

// Processes of multiprocessing that are not forked find what the conversation has, or say that they
// do not know it.
func TestSpawn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		t.Parallel()
		s := start(t, root)
		for _, c := range []struct {
			name, code string
			want       outcome
		}{
			{"conversation", `
import multiprocessing as mp, math as m
K = 10
sq = lambda x: x * x
class P:
    def __init__(self, v): self.v = v
    def __repr__(self): return "P(%d)" % self.v
base = P(7)
lock = mp.Lock()`, outcome{}},
			{"function", "def f(x, k=K): return P(sq(x) + k + base.v + m.floor(1.5))", outcome{}},
			{"spawn", "with mp.get_context('spawn').Pool(1) as p: r = p.map(f, range(2))\nr", outcome{value: "[P(18), P(19)]"}},
			{"forkserver", "with mp.get_context('forkserver').Pool(1) as p: r = p.map(f, range(2))\nr", outcome{value: "[P(18), P(19)]"}},
			{"process", "p = mp.get_context('spawn').Process(target=f, args=(1,)); p.start(); p.join(); p.exitcode", outcome{value: "0"}},
			{"another", "K = 20\ndef f(x): return x + K", outcome{}},
			{"changed", "with mp.get_context('forkserver').Pool(1) as p: r = p.map(f, [1])\nr", outcome{value: "[21]"}},
			{"not-of-a-cell", "exec('def g(x): return x')\nwith mp.get_context('spawn').Pool(1) as p: p.map(g, [1])", outcome{code: 1, exception: "RuntimeError"}},
			{"later", "p = mp.get_context('spawn').Pool(1)\np.map(f, [1])", outcome{value: "[21]"}},
			{"too-late", "def late(x): return x\np.map(late, [1])", outcome{code: 1, exception: "RuntimeError"}},
			{"end", "p.terminate(); p.join()", outcome{}},
		} {
			t.Run(c.name, func(t *testing.T) { s.code(t, c.code).want(t, c.want) })
		}
	})
}
