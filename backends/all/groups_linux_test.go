package all_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/tool"
)

// A relocation is a way in which a conversation of package tool leaves one backend for another.
type relocation struct{ way, from, to string }

// relocations returns all.
func relocations() (some []relocation) {
	for _, way := range []string{"drain", "evicted", "destroyed", "escalated", "late"} {
		for _, from := range []string{"pyodide", "bubblewrap", "docker"} {
			for _, to := range []string{"pyodide", "bubblewrap", "docker"} {
				if from != to && (way != "escalated" || from == "pyodide") { // the others lack nothing
					some = append(some, relocation{way, from, to})
				}
			}
		}
	}
	return some
}

// TestConversationsMove: a conversation in two languages goes on with the variables and files of
// both, between backends that mix languages in a sandbox and Pyodide, which does not.
func TestConversationsMove(t *testing.T) { relocate(t, relocations()) }

// TestConversationsMoveDrawn moves eight of these conversations.
func TestConversationsMoveDrawn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	some := relocations()
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	relocate(t, some[:8])
}

func relocate(t *testing.T, some []relocation) {
	host, err := dockertest.Host()
	check(t, err)
	t.Setenv("CHECKPOINT_KEY", string(bytes.Repeat([]byte("k"), 32)))
	types := map[string]string{
		"pyodide":    "type: pyodide",
		"bubblewrap": "type: bubblewrap, languages: [python, javascript]",
		"docker":     fmt.Sprintf("type: docker, languages: [python, javascript], host: %q, image: %q, pull: never", host, dockertest.Python),
	}
	for _, r := range some {
		file := func(t *testing.T, sessions, routes string) backends.Config {
			t.Helper()
			cfg, err := backends.Parse(fmt.Appendf(nil, "backends: {old: {%s}, new: {%s}}\n"+
				"sessions: {%scheckpoint: {every: 1 run, weaker_isolation: true, key: {env: CHECKPOINT_KEY}}}\n%s", types[r.from], types[r.to], sessions, routes))
			check(t, errors.Join(err, cfg.Check(all.Registry())))
			return cfg
		}
		const toOld, toNew = "routes: [{name: r, split: [{backend: old, weight: 1}, {backend: new, weight: 0}]}]", "routes: [{name: r, split: [{backend: old, weight: 0}, {backend: new, weight: 1}]}]"
		t.Run(r.way+"/"+r.from+"-"+r.to, func(t *testing.T) {
			t.Parallel()
			before, after := file(t, "", toOld), file(t, "", toNew)
			switch r.way {
			case "drain", "late":
				after = file(t, "drain: [old], ", toNew)
			case "escalated":
				before = file(t, "", "escalate: [{from: old, to: new, on: [subprocess]}]\n"+toOld)
				after = before
			}
			b, err := backends.Open(t.Context(), driver.Env{Owner: "moves-" + fmt.Sprint(rand.Uint32())}, all.Registry(), before)
			check(t, err)
			t.Cleanup(func() { check(t, b.Close()) })
			x, err := tool.New(b, b.Manager(), tool.Options{})
			check(t, err)
			c := tool.Conversation{ID: "c1", Subject: "ann"}
			t.Cleanup(func() { check(t, x.Reset(context.Background(), c)) })
			call := func(l executor.Language, code, want string) {
				t.Helper()
				out, err := x.Run(t.Context(), c, tool.Input{Language: l, Code: code}, nil)
				if err != nil || out.Error != "" || strings.TrimSpace(out.Stdout) != want {
					t.Errorf("%s: %s: got %q, notes %q, %s, %v, want %q", l, code, out.Stdout, out.Stderr, out.Error, err, want)
				}
			}
			const python, javascript = executor.Python, executor.JavaScript
			begin := func() {
				t.Helper()
				call(javascript, "let x = [1, 2]; require('fs').writeFileSync('of-js.txt', 'js'); require('fs').writeFileSync('shared', 'js')", "")
			}
			if r.way != "late" {
				begin()
			}
			call(python, "x = {'a': [1]}\nopen('of-python.txt', 'w').write('py'); open('shared', 'w').write('py');", "")
			check(t, b.Reload(t.Context(), after))
			switch r.way {
			case "late":
				begin()
			case "escalated":
				call(python, "import subprocess\nprint(x)", "{'a': [1]}")
			case "evicted":
				for _, err := range b.Manager().Drain(t.Context(), "old") {
					check(t, err)
				}
			case "destroyed":
				for r, err := range b.Manager().Records(t.Context(), "") {
					check(t, err)
					check(t, b.Destroy(t.Context(), r.Handle))
				}
			}
			for range 2 {
				call(python, "print(x, open('of-python.txt').read())", "{'a': [1]} py")
				call(javascript, "console.log(x.join(), require('fs').readFileSync('of-js.txt', 'utf8'))", "1,2 js")
			}
			noticed := r.way != "destroyed" || r.from != "pyodide"    // a holder that has not keeps the languages apart
			if r.to != "pyodide" && r.way != "escalated" && noticed { // both are in one sandbox
				want := "py"
				if r.way == "late" {
					want = "js"
				}
				call(python, "print(open('of-js.txt').read(), open('shared').read())", "js "+want)
				call(javascript, "console.log(require('fs').readFileSync('of-python.txt', 'utf8'))", "py")
			}
			if r.way == "escalated" { // JavaScript is where it was
				return
			}
			waittest.Until(t, "no sandbox is left on "+r.from, func() error {
				for _, s := range b.Stats().Backends {
					if s.Name == "old" && s.Sessions > 0 {
						return fmt.Errorf("%d are", s.Sessions)
					}
				}
				return nil
			})
		})
	}
}
