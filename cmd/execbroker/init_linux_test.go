package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
)

// machines says how a machine comes to have what each type needs, as variables of the environment,
// and what ends that before the test ends. nil is a type whose service has no stand-in that takes
// the example settings as they are.
var machines = map[string]func(t *testing.T) (env []string, end func()){
	"bubblewrap": asItIs,
	"pyodide":    asItIs,
	"docker": func(t *testing.T) ([]string, func()) {
		host := engineOf(t)
		undo, err := dockertest.Name(t.Context(), host, dockertest.Python, docker.DefaultImage)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := undo(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return []string{"DOCKER_HOST=" + host}, func() {}
	},
	"modal": func(t *testing.T) ([]string, func()) {
		p, e := modalEmulator(t, engineOf(t))
		return []string{
			"MODAL_CONFIG_PATH=" + filepath.Join(t.TempDir(), "none"), "MODAL_SERVER_URL=" + e.URL,
			"MODAL_TOKEN_ID=" + e.TokenID, "MODAL_TOKEN_SECRET=" + e.TokenSecret,
		}, func() { ends(t, p) }
	},
	"e2b": nil, "flymachines": nil, "kubernetes": nil,
}

func asItIs(*testing.T) ([]string, func()) { return nil, func() {} }

func engineOf(t *testing.T) string {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	return host
}

// ends ends a server in good order.
func ends(t *testing.T, p *process) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if got := p.code(t, p.Wait()); got != 128+int(syscall.SIGTERM) {
		t.Errorf("%q: got exit code %d: %s", p.Args, got, p.err.String())
	}
}

// TestInitOfEachType writes a configuration for each type. It says in a comment what the type is
// and is right, and so is that for all types. Where the machine has what the type needs, the three
// commands that init prints work as they are.
func TestInitOfEachType(t *testing.T) {
	t.Parallel()
	types := all.Registry().Types()
	for _, typ := range append(types, strings.Join(types, ",")) {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			machine, ok := machines[typ]
			if !ok && !strings.Contains(typ, ",") {
				t.Fatalf("how does a machine have what %s needs? say it in machines", typ)
			}
			env := []string{"KUBECONFIG=" + write(t, t.TempDir(), "kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`)}
			if machine != nil {
				has, end := machine(t)
				defer end()
				env = append(env, has...)
			}
			dir := t.TempDir()
			p := installed(t, "init", "--backend", typ)
			p.Dir, p.Env = dir, append(p.Env, env...)
			if got := p.code(t, p.Run()); got != exitOK {
				t.Fatalf("got exit code %d: %s", got, p.err.String())
			}
			text := read(t, filepath.Join(dir, "execbroker.yaml"))
			for one := range strings.SplitSeq(typ, ",") {
				about := starters[one].about
				if len(about) == 0 {
					t.Fatalf("init knows nothing of %s: it needs an entry in starters", one)
				}
				contains(t, text, fmt.Sprintf("  # %s\n", about[0]), fmt.Sprintf("  %s:\n    type: %[1]s\n", one))
			}
			shell := func(line string) *process {
				p := installed(t)
				p.Dir, p.Env = dir, append(append(p.Env, env...), "PATH="+filepath.Dir(p.Path)+":"+os.Getenv("PATH"))
				p.Path, p.Args = "/bin/sh", []string{"sh", "-c", "exec " + line}
				return p
			}
			_, check, _ := strings.Cut(text, "After a change: ")
			check, _, _ = strings.Cut(check, "\n")
			if p := shell(check); p.code(t, p.Run()) != exitOK {
				t.Errorf("%s: %s", check, p.err.String())
			}
			_, try, _ := strings.Cut(p.out.String(), "Try:\n\n")
			want := "  execbroker doctor --config execbroker.yaml\n  execbroker run --config execbroker.yaml -c 'print(6*7)'\n  execbroker serve --config execbroker.yaml\n"
			if try != want {
				t.Fatalf("got the commands %q, want %q", try, want)
			}
			lines := strings.Split(strings.ReplaceAll(try, "  ", ""), "\n")
			if machine == nil {
				return
			}
			for i, want := range []string{typ + " works", "42\n"} {
				p := shell(lines[i])
				if got := p.code(t, p.Run()); got != exitOK || !strings.Contains(p.out.String(), want) {
					t.Errorf("%s: got exit code %d and %q: %s", lines[i], got, p.out.String(), p.err.String())
				}
			}
			p = shell(lines[2] + " --listen 127.0.0.1:0 --json")
			s := announced[serving](t, p)
			contains(t, ask(t, 200, "POST", s.URL+"/v1/run", `{"code": "print(6*7)"}`, "Authorization", "Bearer "+s.Key), `"stdout":"42\n"`)
			ends(t, p)
		})
	}
}

// The types of init are those of the program, and no others.
func TestStarters(t *testing.T) {
	for typ := range starters {
		if _, ok := machines[typ]; !ok {
			t.Errorf("%s: there is no backend of this type, or TestInitOfEachType does not know it", typ)
		}
	}
}
