package main

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// fakes has the backends in memory, for a program that is not execbroker.
func fakes() *backends.Registry {
	return backends.NewRegistry(driver.NewFactory(fake.Type, func(_ context.Context, env driver.Env, _ struct{}) (executor.Executor, error) {
		return fake.New(fake.Options{}).Open(env)
	}, nil))
}

// TestUsage: what another program has used is shown by its store.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "app.yaml", `
backends: {box: {type: fake, broker: {prices: {creation: 0.25, run: "0.5"}}}}
sessions: {store: "sqlite:`+dir+`/s.db"}
guard: {quotas: [{by: plan, per: month, cost: 100}]}
`)
	today := time.Now().UTC().Format(dayForm)
	if got := run(t, exitOK, "usage", "--config", config); got.out.String() != "" || !strings.Contains(got.err.String(), "nothing was used") {
		t.Errorf("got %q and %q", got.out.String(), got.err.String())
	}
	cfg, err := backends.Parse([]byte(read(t, config)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: "me"}, fakes(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"alice", "alice", "bob"} {
		s, err := b.Create(t.Context(), executor.Spec{Subject: who, Attributes: map[string]string{"plan": "pro"}})
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
	// The time of the runs is that of this machine.
	seconds := regexp.MustCompile(`([, ])\d\.\d{3}([, ])`)
	if got := seconds.ReplaceAllString(run(t, exitOK, "usage", "--config", config, "--by", "day,account", "--csv").out.String(), "${1}T$2"); got != "day,account,runs,seconds,cost\n"+
		today+",plan=pro,3,T,2.25\n"+
		today+",subject=alice,2,T,1.5\n"+
		today+",subject=bob,1,T,0.75\n" {
		t.Errorf("got %s", got)
	}
	table := run(t, exitOK, "usage", "--config", config, "--by", "arm").out.String() // an attribute does not count twice
	if rows := strings.Split(strings.TrimSpace(table), "\n"); len(rows) != 2 || strings.Join(strings.Fields(rows[0]), " ") != "ROUTE ASSIGNED BACKEND RUNS SECONDS COST" ||
		seconds.ReplaceAllString(strings.Join(strings.Fields(rows[1]), " "), "${1}T$2") != "default box box 3 T 2.25" {
		t.Errorf("got %s", table)
	}
	var doc usageDocument
	if got := run(t, exitOK, "usage", "--config", config, "--json", "--by", "account").out.String(); strings.Contains(got, `"day"`) {
		t.Errorf("what is summed over days has one: %s", got)
	}
	if err := json.Unmarshal(run(t, exitOK, "usage", "--config", config, "--json").out.Bytes(), &doc); err != nil || len(doc.Usage) != 3 || doc.Usage[1].Cost != 1_500_000 {
		t.Errorf("got %+v and %v", doc, err)
	}
	if got := run(t, exitOK, "usage", "--config", config, "--to", "2026-01-01").out.String(); got != "" {
		t.Errorf("got %s", got)
	}
	alone := write(t, dir, "alone.yaml", "backends: {box: {type: fake}}\n")
	for want, args := range map[string][]string{
		"sessions.store":      {"--config", alone},
		`did you mean "day"`:  {"--config", config, "--by", "dya"},
		"--from: want a day":  {"--config", config, "--from", "yesterday"},
		"--to: want a day as": {"--config", config, "--to", "1.1.2026"},
	} {
		if got := run(t, exitUsage, append([]string{"usage"}, args...)...).err.String(); !strings.Contains(got, want) {
			t.Errorf("%q: got %s", args, got)
		}
	}
}
