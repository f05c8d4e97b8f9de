package main

import (
	"slices"
	"testing"

	"github.com/execbroker/execbroker/executor/router"
)

const routed = `
backends:
  full: {type: fake}
  less: {type: fake, without: [command]}
routes:
  - {name: premium, match: {attributes: {plan: pro}}, split: [{backend: full, weight: 1}], fallback: [less]}
  - {name: rest, split: [{backend: full, weight: 1}, {backend: less, weight: 1}]}
`

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := write(t, dir, "good.yaml", routed)
	contains(t, run(t, exitOK, "config", "check", "--config", good).out.String(), "good.yaml is right: 2 backends, 2 routes\n")
	var names struct{ Backends, Routes []string }
	decode(t, run(t, exitOK, "config", "check", "--config", good, "--json").out.Bytes(), &names)
	if !slices.Equal(names.Backends, []string{"full", "less"}) || !slices.Equal(names.Routes, []string{"premium", "rest"}) {
		t.Errorf("got %+v", names)
	}
	bad := write(t, dir, "bad.yaml", "backends: {a: {tyep: fake}}\nroutes: [{name: r, split: [{backend: b, weight: -1}]}]\nguard: {code_byte: 1}\n")
	contains(t, run(t, exitUsage, "config", "check", "--config", bad).err.String(),
		`backends.a: unknown field "tyep"; did you mean "type"?`, `routes[0].split[0].backend: unknown backend "b"`, "line 2", "routes[0].split[0].weight: -1",
		`guard: unknown field "code_byte"; did you mean "code_bytes"?`)
	pools := write(t, dir, "pools.yaml", `
backends:
  one: {type: fake, broker: {pools: [{size: 1}]}}
  two: {type: fake, broker: {pools: [{size: 1, languages: [python, javascript]}, {size: 1, languages: [python]}]}}
  three: {type: fake, broker: {pools: [{size: 1, languages: [python, javascript], limits: {processes: 9}}]}}
  four: {type: fake}
routes: [{name: all, split: [{backend: one, weight: 1}]}]`)
	contains(t, run(t, exitOK, "config", "check", "--config", pools).out.String(),
		"backends.one.broker.pools[0]: this pool never serves `tool`, because it differs in Languages (it asks for [python javascript])\n"+
			"backends.three.broker.pools[0]: this pool never serves `tool`, because it differs in Limits\n"+
			"backends.three.broker.pools[0]: this pool never serves `serve`, because it differs in Languages (it asks for the first of the backend), Limits\n"+
			pools+" is right: 4 backends, 1 route\n")
	weak := write(t, dir, "weak.yaml", "backends: {a: {type: fake, without: [network-none]}}")
	contains(t, run(t, exitOK, "config", "check", "--config", weak).out.String(),
		"`run` refuses it: it lacks network-none\n`serve` refuses it: it lacks network-none\n", "is right: 1 backend, ")
	run(t, exitUsage, "config", "check")
	run(t, exitUsage, "config", "check", "--config", dir+"/none.yaml")
}

// check finds everything for which run, serve and mcp refuse a configuration, with the same
// messages and all at once.
func TestConfigCheckFindsWhatOthersRefuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		config string
		want   []string
		args   []string // with these the configuration has no error
	}{
		"syntax":       {config: "backends: {", want: []string{"not YAML"}},
		"empty":        {config: "{}", want: []string{"backends: no backend"}},
		"unknown":      {config: "backends: {a: {type: fake}}\nrouts: []\n", want: []string{`unknown field "routs"; did you mean "routes"? (line 2, column 1)`}},
		"type":         {config: "backends: {a: {type: fkae}}", want: []string{`backends.a.type: unknown type "fkae"`}},
		"settings":     {config: "backends: {a: {type: strict}}", want: []string{"backends.a.image: is required"}},
		"route":        {config: "backends: {a: {type: fake}}\nroutes: [{name: r, split: [{backend: b, weight: 1}]}]", want: []string{`unknown backend "b"`, "line 2"}},
		"routes":       {config: "backends: {a: {type: fake}, b: {type: fake}}", want: []string{"routes: missing; with several backends ", "--backend: a, b"}, args: []string{"--backend", "a"}},
		"opening":      {config: "backends:\n  a: {type: fake}\n  b: {type: fake, refuse: true}\nroutes: [{name: r, split: [{backend: a, weight: 1}]}]", want: []string{"backends.b.refuse: the machine is not right (line 3, column 19)"}, args: []string{"--backend", "a"}},
		"pool":         {config: "backends:\n  a: {type: fake, without: [packages], broker: {pools: [{size: 1, packages: [{names: [six]}]}]}}", want: []string{"backends.a.broker.pools[0]: not supported", "packages", "line 2"}},
		"suspend":      {config: "backends: {a: {type: fake, broker: {pools: [{size: 1, suspended: true}]}}}", want: []string{"backends.a.broker.pools[0]: ", "suspend"}},
		"prelude":      {config: "backends: {a: {type: fake, broker: {pools: [{size: 1, prelude: [{language: python, code: \"\"}]}]}}}", want: []string{"backends.a.broker.pools[0].prelude[0].code: empty"}},
		"guard":        {config: "backends: {a: {type: fake}}\nguard: {code_bytes: -1}", want: []string{"guard.code_bytes: negative (line 2, column 9)"}},
		"sessions":     {config: "backends: {a: {type: fake}}\nsessions: {store: nowhere}", want: []string{"sessions.store: unknown store"}},
		"all-of-these": {config: "backends:\n  a: {type: fake, refuse: true}\n  b: {type: fake, broker: {pools: [{size: 1, suspended: true}]}}\n", want: []string{"3 errors", "routes: ", "backends.a.refuse: ", "backends.b.broker.pools[0]: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := write(t, dir, name+".yaml", c.config)
			check := []string{"config", "check"}
			for _, args := range [][]string{check, {"run", "-c", "6*7"}, {"serve", "--listen", "127.0.0.1:0"}, {"mcp"}} {
				got := run(t, exitUsage, append(args, "--config", file)...).err.String()
				if want := c.want; len(want) < 4 || args[0] == check[0] { // of many errors, the other commands report the first
					contains(t, got, want...)
				}
			}
			if c.args != nil {
				for _, args := range [][]string{check, {"run", "-c", "6*7"}} {
					run(t, exitOK, append(append(args, "--config", file), c.args...)...)
				}
			}
		})
	}
}

func TestConfigExplain(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "c.yaml", routed)
	explain := func(code int, args ...string) string {
		t.Helper()
		return run(t, code, append([]string{"config", "explain", "--config", config}, args...)...).out.String()
	}
	if got, want := explain(exitOK, "--subject", "u", "--attribute", "plan=pro"), "route     premium\nassigned  full\ntried     full, then less\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	contains(t, explain(exitOK, "--attribute", "plan=pro", "--require", "command"), "tried     full\n", "cannot    less lacks command\n")
	contains(t, explain(exitOK), "route     rest\n", "drawn for each session", "split     full 1 of 2, less 1 of 2\n", "tried     the one that is drawn, if it can\n")
	contains(t, explain(exitOK, "--require", "command"), "drawn for each session", "cannot    less lacks command\n")
	contains(t, explain(exitFailed, "--template", "none"), "drawn for each session", "split     full 1 of 2, less 1 of 2\n", "tried     none", "cannot    full lacks template:none\n", "cannot    less lacks template:none\n")
	contains(t, explain(exitOK, "--subject", "u"), "assigned  ", "split     full 1 of 2, less 1 of 2\n", "bucket    1 of the 1 of ")
	contains(t, explain(exitFailed, "--attribute", "plan=pro", "--template", "none"), "tried     none", "cannot    full lacks template:none\n")
	var first, again router.Decision
	decode(t, []byte(explain(exitOK, "--subject", "u7", "--json")), &first)
	decode(t, []byte(explain(exitOK, "--subject", "u7", "--json")), &again)
	if first.Assigned == "" || first.Bucket != 1 || first.Assigned != again.Assigned {
		t.Errorf("got %+v and %+v", first, again)
	}
	run(t, exitUsage, "config", "explain", "--config", config, "--label", "not a label=1")
}

// Without --backend the routes of the file decide where code runs.
func TestRunByRoutes(t *testing.T) {
	t.Parallel()
	config := write(t, t.TempDir(), "c.yaml", routed)
	var d struct {
		Result struct {
			Origin struct{ Route, Backend string }
		}
	}
	decode(t, run(t, exitOK, "run", "--config", config, "-c", "print(1)", "--json").out.Bytes(), &d)
	if o := d.Result.Origin; o.Route != "rest" || o.Backend != "full" && o.Backend != "less" {
		t.Errorf("got %+v", o)
	}
}
