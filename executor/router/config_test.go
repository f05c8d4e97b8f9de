package router_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/internal/fake"
)

func TestEveryErrorAtOnce(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}})
	_, err := router.New("front", w.execs, router.Config{Routes: []router.Route{
		{Name: "", Split: shares("a", 0)},
		{Name: "x", Split: shares("b", 1, "a", -1, "a", 2000), Fallback: []string{"a", "a", "c"}, Match: router.Match{Require: []executor.Feature{"telepathy"}}},
		{Name: "x"},
	}}, executor.Hooks{})
	if !errors.Is(err, executor.ErrInvalid) {
		t.Fatalf("got %v, want %v", err, executor.ErrInvalid)
	}
	for _, want := range []string{
		`routes[0].name: empty`, `routes[0].split: no share has a weight`, `routes[1].split[0].backend: unknown backend "b"; there are a`,
		`routes[1].split[1].weight: -1`, `routes[1].split[2].backend: "a" has a share already`, `routes[1].split[2].weight: 2000`,
		`routes[1].fallback[1]: "a" is there already`, `routes[1].fallback[2]: unknown backend "c"; there are a`, `routes[1].match.require[0]: unknown feature "telepathy"`,
		`routes[1]: never reached: routes[0]`, `routes[2].name: "x" is already the name of routes[1]`, `routes[2].split: no share`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %q in it", err, want)
		}
	}
	if _, err := router.New("front", map[string]executor.Executor{"b": w.execs["a"]}, router.Config{Routes: []router.Route{{Name: "r", Split: shares("b", 1)}}}, executor.Hooks{}); err == nil {
		t.Error("a backend under another name: got no error")
	}
}

func TestConfigIsCopied(t *testing.T) {
	w := build(t, map[string]fake.Options{"a": {}, "b": {}})
	routes := []router.Route{{Name: "r", Match: router.Match{Attributes: map[string]string{"k": "v"}}, Split: shares("a", 1)}}
	r := w.router(t, routes...)
	routes[0].Split[0].Backend = "b"
	routes[0].Match.Attributes["k"] = "w"
	if d, err := r.Decide(executor.Spec{Attributes: map[string]string{"k": "v"}}); err != nil || d.Assigned != "a" {
		t.Errorf("got %+v %v, want a", d, err)
	}
}

// FuzzDecide tests that every table that Check accepts decides, always in the same way, and for a
// backend that it names.
func FuzzDecide(f *testing.F) {
	f.Add(`{"routes":[{"name":"r","split":[{"backend":"a","weight":9},{"backend":"b","weight":1}]}]}`, "user", "plan", "pro")
	f.Add(`{"routes":[{"name":"p","match":{"attributes":{"plan":"pro"}},"split":[{"backend":"b","weight":1}],"fallback":["a"]},{"name":"r","split":[{"backend":"a","weight":1000}]}]}`, "", "plan", "pro")
	w := build(f, map[string]fake.Options{"a": {}, "b": {}})
	f.Fuzz(func(t *testing.T, table, subject, key, value string) {
		var cfg router.Config
		if json.Unmarshal([]byte(table), &cfg) != nil || len(cfg.Routes) > 100 {
			return
		}
		r, err := router.New("front", w.execs, cfg, executor.Hooks{})
		if (err == nil) != (cfg.Check([]string{"a", "b"}) == nil) {
			t.Fatalf("New says %v, Check %v", err, cfg.Check([]string{"a", "b"}))
		}
		if err != nil {
			return
		}
		spec := executor.Spec{Subject: subject, Attributes: map[string]string{key: value}}
		d, err := r.Decide(spec)
		if err != nil {
			return
		}
		if again, _ := r.Decide(spec); again.Assigned != d.Assigned {
			t.Fatalf("got %q, then %q", d.Assigned, again.Assigned)
		}
		if d.Assigned == "" && subject != "" || d.Assigned != "" && d.Assigned != "a" && d.Assigned != "b" {
			t.Fatalf("got %+v", d)
		}
	})
}

// busy is a router with a split and fallbacks, and a Spec for its second route.
func busy(tb testing.TB) (*router.Router, executor.Spec) {
	w := build(tb, map[string]fake.Options{"a": {}, "b": {}})
	r := w.router(tb,
		router.Route{Name: "pro", Match: router.Match{Attributes: map[string]string{"plan": "pro"}}, Split: shares("a", 90, "b", 10), Fallback: []string{"b"}},
		router.Route{Name: "rest", Split: shares("a", 50, "b", 50), Fallback: []string{"b"}})
	return r, executor.Spec{Subject: "user-1", Attributes: map[string]string{"plan": "free"}, Languages: []executor.Language{executor.Python}}
}

// Each Create decides, so a decision makes no garbage.
func TestDecideAllocatesNothing(t *testing.T) {
	r, spec := busy(t)
	if n := testing.AllocsPerRun(100, func() { r.Decide(spec) }); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	r, spec := busy(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Decide(spec); err != nil {
			b.Fatal(err)
		}
	}
}
