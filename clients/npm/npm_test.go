// Package npm_test builds the npm package execbroker and runs its tests against a real server over
// Pyodide.
package npm_test

import (
	"context"
	"encoding/json"
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/pyodide"
	"github.com/execbroker/execbroker/server"
)

var update = flag.Bool("update", false, "write src/api.ts")

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// The types of the client are those of the OpenAPI document.
func TestTypes(t *testing.T) {
	want, err := types(server.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("src/api.ts", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("src/api.ts"); err != nil || string(got) != string(want) {
		t.Errorf("src/api.ts is not made from server/openapi.json (%v): go test ./clients/npm -run TestTypes -update", err)
	}
}

// node runs a program in the directory of the package.
func node(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s\n%s", name, args, err, out, &stderr)
	}
	return string(out)
}

// The package compiles, works, and contains what it should.
func TestPackage(t *testing.T) {
	dir := npmtest.Install(t, ".")
	node(t, dir, nil, "node", "node_modules/typescript/bin/tsc")

	x, err := pyodide.Open(t.Context(), driver.Env{Owner: "npm"}, pyodide.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sessions.New(x, sessions.NewMemoryStore(), sessions.Options{Instance: "npm"})
	if err != nil {
		t.Fatal(err)
	}
	const key = "key-of-the-npm-client-0123"
	var keys server.Keys
	if err := keys.Add(key, server.Client{Subject: "npm"}); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(x, server.Config{Keys: keys, Conversations: m})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		for _, c := range []func() error{s.Close, func() error { return m.Close(context.WithoutCancel(t.Context())) }, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Log(node(t, dir, []string{"EXECBROKER_URL=" + h.URL, "EXECBROKER_KEY=" + key}, "node", "--test", "--test-reporter=spec", "test/client.test.mjs"))

	var packed []struct {
		Files []struct{ Path string }
	}
	text := node(t, dir, nil, "npm", "pack", "--dry-run", "--json", "--ignore-scripts", "--offline")
	if err := json.Unmarshal([]byte(text), &packed); err != nil || len(packed) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	var names []string
	for _, f := range packed[0].Files {
		names = append(names, f.Path)
	}
	want := []string{"LICENSE", "README.md", "package.json"}
	for _, module := range []string{"api", "bytes", "client", "errors", "index", "stream"} {
		want = append(want, "dist/"+module+".js", "dist/"+module+".d.ts")
	}
	slices.Sort(names)
	if slices.Sort(want); !slices.Equal(names, want) {
		t.Errorf("the package has %q, want %q", names, want)
	}
	var manifest map[string]any
	if data, err := os.ReadFile("package.json"); err != nil || json.Unmarshal(data, &manifest) != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"dependencies", "peerDependencies", "optionalDependencies"} {
		if manifest[kind] != nil {
			t.Errorf("the package has %s", kind)
		}
	}
	for mine, of := range map[string]string{"LICENSE": "../../LICENSE"} {
		got, err := os.ReadFile(mine)
		want, err2 := os.ReadFile(filepath.FromSlash(of))
		if err != nil || err2 != nil || string(got) != string(want) {
			t.Errorf("%s is not %s: %v, %v", mine, of, err, err2)
		}
	}
}
