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
  four: {type: fake}`)
	contains(t, run(t, exitOK, "config", "check", "--config", pools).out.String(),
		"backends.one.broker.pools[0]: this pool never serves `tool`, because it differs in Languages (it asks for [python javascript])\n"+
			"backends.three.broker.pools[0]: this pool never serves `tool`, because it differs in Limits\n"+
			"backends.three.broker.pools[0]: this pool never serves `serve`, because it differs in Languages (it asks for the first of the backend), Limits\n"+
			pools+" is right: 4 backends, 0 routes\n")
	run(t, exitUsage, "config", "check")
	run(t, exitUsage, "config", "check", "--config", dir+"/none.yaml")
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
	contains(t, explain(exitOK), "route     rest\n", "drawn for each session", "split     full 1 of 2, less 1 of 2\n")
	contains(t, explain(exitOK, "--require", "command"), "drawn for each session", "cannot    less lacks command\n")
	contains(t, explain(exitFailed, "--attribute", "plan=pro", "--template", "none"), "tried     nothing", "cannot    full lacks template:none\n")
	var first, again router.Decision
	decode(t, []byte(explain(exitOK, "--subject", "u7", "--json")), &first)
	decode(t, []byte(explain(exitOK, "--subject", "u7", "--json")), &again)
	if first.Assigned == "" || first.Assigned != again.Assigned {
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
