package main

import (
	"encoding/csv"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/server"
)

// TestExperimentReport: people get the figures of programs that share a store, in each form.
func TestExperimentReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const file = `
backends: {a: {type: fake}, b: {type: fake}}
routes: [{name: rest, match: {labels: {x: y}}, split: [{backend: a, weight: 1}]}, {name: "=chat()", split: [{backend: a, weight: 1}, {backend: b, weight: 1}]}]
sessions: {store: %q}`
	config := write(t, dir, "app.yaml", fmt.Sprintf(file, "sqlite:"+filepath.Join(dir, "app.db")))
	contains(t, run(t, 0, "experiment", "report", "--config", config).out.String(), "# Experiment =chat()", "No rollout decides", "nothing has been counted yet")
	cfg, err := backends.Parse([]byte(read(t, config)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: "me"}, fakes(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s, err := b.Create(t.Context(), executor.Spec{Subject: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), executor.Request{Code: "print(1)"}, nil); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	got := run(t, 0, "experiment", "report", "--config", config).out.String()
	contains(t, got, "# Experiment =chat()", "A session is judged after 10m0s", "| a ", "| b ", "cold start p95")
	doc := run(t, 0, "experiment", "report", "=chat()", "--config", config, "--json").out.String()
	var list server.ExperimentList
	decode(t, []byte(doc), &list)
	if len(list.Experiments) != 1 || list.Experiments[0].Arms[0].Turns+list.Experiments[0].Arms[1].Turns != 20 || list.Experiments[0].Replica != "" {
		t.Errorf("got %+v", list)
	}
	answer := write(t, dir, "answer.json", doc)
	if again := run(t, 0, "experiment", "report", "--from", answer).out.String(); again != got {
		t.Errorf("got %s, want %s", again, got)
	}
	contains(t, run(t, 0, "experiment", "report", "--config", config, "--format", "html").out.String(), "<!doctype html>", "Experiment =chat()", "<svg")
	lines, err := csv.NewReader(strings.NewReader(run(t, 0, "experiment", "report", "--config", config, "--format", "csv").out.String())).ReadAll()
	if err != nil || len(lines) != 3 || lines[2][0] != "'=chat()" {
		t.Errorf("got %q, %v", lines, err)
	}
	contains(t, run(t, exitUsage, "experiment", "report", "caht", "--config", config).err.String(), "chat")
	contains(t, run(t, exitUsage, "experiment", "report", "--config", config, "--format", "pdf").err.String(), "--format")
	contains(t, run(t, exitUsage, "experiment", "report", "--from", config).err.String(), "not the answer of a server")
	memory := write(t, dir, "memory.yaml", fmt.Sprintf(file, "memory"))
	contains(t, run(t, exitUsage, "experiment", "report", "--config", memory).err.String(), "sessions.store")
	none := write(t, dir, "none.yaml", "backends: {a: {type: fake}}")
	contains(t, run(t, exitUsage, "experiment", "report", "--config", none).err.String(), "no route with a split")
}
