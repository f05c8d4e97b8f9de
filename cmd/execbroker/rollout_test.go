package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/execbroker/execbroker/executor/rollout"
)

// TestRollout: people see a rollout and decide, from another process than those that serve.
func TestRollout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const file = `
backends: {a: {type: fake}, b: {type: fake}}
routes: [{name: chat, split: [{backend: a, weight: 1}, {backend: b, weight: 0}]}]
rollouts: {chat: {to: b, guard: {success: -1%%, p95: +30%%}}}
sessions: {store: %q}`
	config := write(t, dir, "app.yaml", fmt.Sprintf(file, "sqlite:"+filepath.Join(dir, "app.db")))
	if got := run(t, 0, "rollout", "--config", config).out.String(); got != "" {
		t.Errorf("got %s before any process has begun it", got)
	}
	run(t, 0, "rollout", "pause", "chat", "--config", config)
	got := run(t, 0, "rollout", "--config", config).out.String()
	contains(t, got, "chat: 1 % of new sessions go to b, paused since", "old", "new", "success", "-100 % to 100 %", "not known yet", "begin", "pause by ", "by hand")
	var all []rollout.Report
	decode(t, run(t, 0, "rollout", "--config", config, "--json").out.Bytes(), &all)
	if len(all) != 1 || all[0].Route != "chat" || all[0].Share != 1 || len(all[0].Guards) != 2 || len(all[0].Log) != 2 {
		t.Errorf("got %+v", all)
	}
	contains(t, run(t, exitUsage, "rollout", "pause", "chat", "--config", config).err.String(), "the rollout is paused")
	contains(t, run(t, exitUsage, "rollout", "pause", "none", "--config", config).err.String(), `no rollout of the route "none"`)
	run(t, 0, "rollout", "promote", "chat", "--config", config)
	contains(t, run(t, 0, "rollout", "--config", config).out.String(), "100 % of new sessions go to b, promoted")
	memory := write(t, dir, "memory.yaml", fmt.Sprintf(file, "memory"))
	contains(t, run(t, exitUsage, "rollout", "--config", memory).err.String(), "sessions.store")
	none := write(t, dir, "none.yaml", "backends: {a: {type: fake}}")
	contains(t, run(t, exitUsage, "rollout", "--config", none).err.String(), "no rollouts")
}
