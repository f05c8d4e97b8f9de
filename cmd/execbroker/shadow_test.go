package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// TestShadow: what a program has found by repeating conversations is there for people, and what it
// has kept runs again.
func TestShadow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const file = `
backends: {a: {type: fake}, b: {type: docker, without: [stdin]}}
routes: [{name: chat, split: [{backend: a, weight: 1}]}]
shadows: {chat: {to: b, share: 100%%, when: {shadow: allowed}, most: 1000/min, budget: 5/day, control: 50%%, at_once: 50, keep: {code: true}}}
sessions: {store: %q}`
	text := fmt.Sprintf(file, "sqlite:"+filepath.Join(dir, "app.db"))
	config := write(t, dir, "app.yaml", text)
	contains(t, run(t, 0, "shadow", "--config", config).out.String(), "chat: 0 conversations were repeated on b, and 0 for control", "-100 %")
	contains(t, run(t, exitUsage, "parity", "--from-shadow", "chat", "--config", config).err.String(), "no example of chat is kept")
	contains(t, run(t, exitUsage, "parity", "--from-shadow", "none", "--config", config).err.String(), `no shadow of the route "none"`)
	converse(t, text)

	p := run(t, 0, "shadow", "--config", config)
	contains(t, p.out.String(), "conversations were repeated on b", "explained: it lacks stdin:python  100 %", "due to the backend", "left the sample: ", "differed ")
	var all []backends.ShadowReport
	decode(t, run(t, 0, "shadow", "--config", config, "--json").out.Bytes(), &all)
	if len(all) != 1 || all[0].Arms[0].Conversations < 5 || all[0].Arms[1].Conversations < 5 || !all[0].Classes[0].Differs() {
		t.Errorf("got %+v", all)
	}
	p = run(t, 0, "shadow", "--examples", "chat", "--config", config)
	contains(t, p.out.String(), "explained: it lacks stdin:python\n", `"stdin":"Ada\n"`, `x = 1`)
	contains(t, run(t, exitUsage, "shadow", "--examples", "none", "--config", config).err.String(), `no shadow of the route "none"`)

	p = run(t, 0, "parity", "--from-shadow", "chat", "--config", config, "--plain", "none")
	contains(t, p.out.String(), "explained: it lacks stdin:python (b 3)")
	var r parity.Report
	decode(t, run(t, 0, "parity", "--from-shadow", "chat", "--config", config, "--json").out.Bytes(), &r)
	if len(r.Programs) != 3 || r.Programs[0].Name != "chat/0" || r.Totals["b"][parity.Explained] != 3 {
		t.Errorf("got %+v", r)
	}
	// Commands that use no route take the file as well.
	run(t, 0, "session", "list", "--config", config)
	contains(t, run(t, 0, "run", "-c", "print(7)", "--backend", "a", "--config", config).out.String(), "7")
	memory := write(t, dir, "memory.yaml", fmt.Sprintf(file, "memory"))
	contains(t, run(t, exitUsage, "shadow", "--config", memory).err.String(), "sessions.store")
	none := write(t, dir, "none.yaml", "backends: {a: {type: fake}}")
	contains(t, run(t, exitUsage, "shadow", "--config", none).err.String(), "no shadows")
}

// converse is a program that serves some conversations by a configuration.
func converse(t *testing.T, text string) {
	t.Helper()
	open := func(ctx context.Context, env driver.Env, c fakeConfig) (executor.Executor, error) {
		return fake.New(fake.Options{Capabilities: fake.Without(fake.All(), c.Without...)}).Open(env)
	}
	cfg, err := backends.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: "app"}, backends.NewRegistry(driver.NewFactory("fake", open, nil), driver.NewFactory("docker", open, nil)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	const n = 60
	for range n {
		s, err := b.Create(t.Context(), executor.Spec{Attributes: map[string]string{"shadow": "allowed"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Files().Write(t.Context(), "a.txt", strings.NewReader("text"), 0); err != nil {
			t.Error(err)
		}
		for _, req := range []executor.Request{{Code: "x = 1"}, {Code: "print(readline(), read(\"a.txt\"))", Stdin: strings.NewReader("Ada\n")}} {
			if _, err := s.Run(t.Context(), req, nil); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	waittest.Until(t, "all are repeated", func() error {
		all, err := b.Shadows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left := all[0].Left; left["differed"]+left["ended"]+left["at_once"] != n {
			return fmt.Errorf("got %v", left)
		}
		return nil
	})
}
