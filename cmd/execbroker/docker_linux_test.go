package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
)

// These tests run the real program with the engine of this machine.

// boxes returns the address of the engine, and a configuration of one backend on it.
func boxes(t *testing.T) (host, config string) {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	return host, write(t, t.TempDir(), "docker.yaml", "backends:\n  box: {type: docker, host: \""+host+"\", image: \""+dockertest.Python+"\", pull: never, languages: [python, javascript]}\n")
}

// testOwner returns a unique owner, so that a test does not see what a killed test has left.
func testOwner() string { return "test-" + strings.ToLower(rand.Text()) }

// containers counts the containers of an owner on the engine.
func containers(t *testing.T, host, owner string) int {
	t.Helper()
	names, err := dockertest.Containers(context.Background(), host, driver.LabelOwner+"="+owner)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestDockerRun(t *testing.T) {
	t.Parallel()
	host, config := boxes(t)
	out, charts := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "charts")
	t.Cleanup(func() {
		if files, err := filepath.Glob(filepath.Join(charts, "*")); err != nil || len(files) != 1 || filepath.Base(files[0]) != "chart.png" {
			t.Errorf("got the charts %q, %v, want the one that the code has saved", files, err)
		}
	})
	for name, c := range map[string]struct {
		args []string
		code int
		out  []string
		err  []string
	}{
		"value":      {args: []string{"-c", "6*7"}, out: []string{"42\n"}},
		"javascript": {args: []string{"--language", "javascript", "-c", "await 6*7"}, out: []string{"42\n"}},
		"exit":       {args: []string{"-c", "import os; os._exit(137)"}, code: exitFailed, err: []string{"exit code 137"}},
		"memory":     {args: []string{"--timeout", "2m", "-c", "b = []\nwhile True: b.append(bytearray(1 << 24))"}, code: exitFailed, err: []string{"memory"}},
		"unreadable": {args: []string{"--out", out, "-c", "import os\nfor n in 'abc': open(n + '.txt', 'w').write(n)\nos.chmod('b.txt', 0)"}, code: exitFailed, err: []string{"a.txt (", "not saved: b.txt: ", "c.txt ("}},
		"saved":      {args: []string{"--out", charts, "-c", "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig('chart.png', dpi=50); plt.show()"}, err: []string{"saved " + filepath.Join(charts, "chart.png"), "removed " + filepath.Join(charts, "output-1.png")}},
		"figure":     {args: []string{"--out", out, "-c", "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"}, err: []string{"image/png"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := testOwner()
			p := installed(t, append([]string{"run", "--config", config, "--owner", owner}, c.args...)...)
			if got := p.code(t, p.Run()); got != c.code {
				t.Errorf("got exit code %d, want %d", got, c.code)
			}
			contains(t, p.out.String(), c.out...)
			contains(t, p.err.String(), c.err...)
			if n := containers(t, host, owner); n > 0 {
				t.Errorf("%d containers are left", n)
			}
		})
	}
}

// TestDockerReap kills two programs of two owners during a run. session reap --force removes what
// one owner has left at once, and nothing of the other owner.
func TestDockerReap(t *testing.T) {
	t.Parallel()
	host, config := boxes(t)
	owners := []string{testOwner(), testOwner()}
	for _, o := range owners {
		p := installed(t, "run", "--config", config, "--owner", o, "-c", "print('on', flush=True)\nwhile True: pass")
		p.Stdout = nil
		out, err := p.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		_ = p.Process.Kill()
		_ = p.Wait()
		if err != nil || line != "on\n" {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	for i, o := range owners {
		if n := containers(t, host, o); n != 1 {
			t.Errorf("owner %d: got %d containers before, want 1", i, n)
		}
		p := installed(t, "session", "reap", "--config", config, "--owner", o, "--older-than", "1ns", "--force")
		if err := p.Run(); err != nil || strings.Count(p.out.String(), "removed ") != 1 {
			t.Errorf("owner %d: got %q, %v", i, p.out.String(), err)
		}
		if n := containers(t, host, o); n != 0 {
			t.Errorf("owner %d: got %d containers after", i, n)
		}
	}
}
