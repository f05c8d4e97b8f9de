package e2b_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/internal/npmtest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// E2B's own command line gets what it expects, at a terminal, of which its connect makes one in the
// sandbox.
func TestCLI(t *testing.T) {
	program := filepath.Join(npmtest.Install(t, "testdata/cli"), "node_modules/@e2b/cli/dist/index.js")
	x, err := e2btest.Docker(t.Context(), "e2b-cli", docker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e2btest.Serve(t.Context(), x, e2btest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	home := t.TempDir()
	cli := func(input string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		line := "stty cols 80 rows 24 -echo; exec node " + program + " sandbox " + strings.Join(args, " ")
		cmd := exec.CommandContext(ctx, "script", "-qec", line, "/dev/null")
		cmd.Stdin = strings.NewReader(input)
		cmd.Env = append(os.Environ(), "HOME="+home, "E2B_API_URL="+s.URL, "E2B_SANDBOX_URL="+s.URL, "E2B_API_KEY="+e2btest.Key, "CI=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var made struct{ SandboxID string }
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v2/sandboxes", strings.NewReader(`{"templateID": "base", "timeout": 1800}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-KEY", e2btest.Key)
	c := &http.Client{Transport: &http.Transport{}}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil {
		t.Fatal(err)
	}
	id := made.SandboxID
	for _, c := range []struct {
		input string
		args  []string
		want  string
	}{
		{"", []string{"list"}, id},
		{"", []string{"info", id}, id},
		{"", []string{"exec", id, "echo", "of-the-box"}, "of-the-box"},
		{"echo $((6*7)); stty size; exit\n", []string{"connect", id}, "42"},
		{"", []string{"logs", id}, "sandbox created"},
		{"", []string{"metrics", id}, ""},
		{"", []string{"pause", id}, id},
		{"", []string{"resume", id}, id},
		{"", []string{"kill", id}, id},
	} {
		if got, err := cli(c.input, c.args...); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%q: got %q, %v, want %q in it", c.args, got, err, c.want)
		}
	}
}
