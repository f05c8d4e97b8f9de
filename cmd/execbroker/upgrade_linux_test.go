package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/server"
)

// before is the last commit whose records carry no version of their schema.
const before = "665d9a984e0f"

// buildCommit builds the program of this working copy, or of a commit.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	dir, program := "../..", filepath.Join(t.TempDir(), "execbroker")
	if commit != "" {
		dir = t.TempDir()
		archive := exec.CommandContext(t.Context(), "git", "archive", commit)
		archive.Dir = "../.."
		extract := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
		pipe, err := archive.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		archive.Stderr, extract.Stdin = &said, pipe
		if err := archive.Start(); err != nil {
			t.Fatal(err)
		}
		out, err := extract.CombinedOutput()
		if aerr := archive.Wait(); aerr != nil || err != nil {
			t.Fatalf("commit %s is needed, and a clone with --depth may lack it: git fetch --unshallow\n%v: %s\n%v: %s",
				commit, aerr, said.String(), err, out)
		}
	}
	c := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/execbroker")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return program
}

// upgrade is a deployment whose replicas are replaced while people talk to it.
type upgrade struct {
	*drill
	talks []*conversation
	turns int
}

// turn lets every conversation say something at once. Each turn has to succeed.
func (u *upgrade) turn() {
	u.Helper()
	var wg sync.WaitGroup
	for _, c := range u.talks {
		wg.Go(func() {
			sum, begun := c.sum, c.begun
			code := "n = 1\nprint(n)"
			if begun {
				code = "import time\ntime.sleep(0.3)\nn = n + 1\nprint(n)"
			}
			a := u.send(c.key, c.key, fmt.Sprint("turn-", c.sent), code)
			if got, want := string(a.Stdout), fmt.Sprintln(sum+1); a.Problem.Kind != "" || got != want {
				u.Errorf("%s: got %q, %+v, want %q", c.key, got, a.Problem, want)
			}
			c.sent, c.sum, c.begun = c.sent+1, sum+1, true
		})
	}
	wg.Wait()
	u.turns += len(u.talks)
}

// replace starts other replicas in the place of those that there are. With together, old and new
// ones serve the same conversations for some turns. Those that leave are stopped by a signal.
func (u *upgrade) replace(together bool, programs ...string) {
	u.Helper()
	old := u.replicas
	if together {
		for _, p := range programs {
			u.add(p)
		}
		u.turn()
		u.turn()
		u.mu.Lock()
		u.replicas = u.replicas[len(old):]
		u.mu.Unlock()
		u.turn()
	}
	for _, m := range old {
		u.stop(m)
	}
	if !together {
		u.replicas = nil
		for _, p := range programs {
			u.add(p)
		}
	}
	u.turn()
	u.turn()
}

// add starts a replica of a program.
func (u *upgrade) add(program string) {
	u.Helper()
	p := command(u, "serve", "--config", u.config, "--keys", u.keys, "--listen", "127.0.0.1:0", "--owner", drillOwner, "--json")
	p.Path = program
	m := &replica{p, announced[serving](u, p).URL}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.replicas = append(u.replicas, m)
}

// stop ends a replica as an operator does. It gives its conversations back.
func (u *upgrade) stop(m *replica) {
	u.Helper()
	if err := m.Process.Signal(syscall.SIGTERM); err != nil {
		u.Error(err)
	}
	if err := m.Wait(); m.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		u.Errorf("the replica ended with %v: %s", err, m.err.String())
	}
}

// TestUpgrade replaces replicas of an old version by this one, and back, while conversations go on
// in their sandboxes: no turn fails, and no conversation loses what it had. The old version is the
// last one whose records have no schema.
func TestUpgrade(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	was, is := buildCommit(t, before), buildCommit(t, "")
	for _, store := range []string{"sqlite", "postgres", "redis"} {
		t.Run(store, func(t *testing.T) {
			var url, password string
			switch store {
			case "sqlite":
				url = "sqlite:" + filepath.Join(t.TempDir(), "sessions.db")
			case "postgres":
				db := dbtest.Postgres(t)
				url, password = db.URL, db.Password
			case "redis":
				db := dbtest.Redis(t)
				url, password = db.URL, db.Password
			}
			t.Setenv("DRILL_PASSWORD", password)
			u := &upgrade{}
			var clients []server.Client
			for i := range 3 {
				u.talks = append(u.talks, &conversation{key: fmt.Sprint("chat-", i)})
				clients = append(clients, server.Client{Subject: u.talks[i].key})
			}
			u.drill = newDrill(t, 0, clients...)
			secret := ", store_password: {env: DRILL_PASSWORD}"
			if password == "" {
				secret = ""
			}
			u.write(u.config, fmt.Sprintf(`
backends: {box: {type: docker, host: %q, image: %q, pull: never}}
sessions: {store: %q%s}
guard: {runs_at_once: 8, quotas: [{per: month, runs: 1000}]}`, host, dockertest.Python, url, secret))
			t.Cleanup(func() {
				for _, m := range u.replicas {
					_ = m.Process.Kill() // which a test that has passed has stopped
				}
			})
			// One process at a time has a database of SQLite.
			together := store != "sqlite"
			programs := func(p string) []string {
				if together {
					return []string{p, p}
				}
				return []string{p}
			}
			u.replace(false, programs(was)...)
			u.replace(together, programs(is)...)
			u.replace(together, programs(was)...)
			u.replace(together, programs(is)...)
			t.Logf("%d turns", u.turns)
			for _, c := range u.talks {
				var p server.Problem
				status, err := u.ask(http.MethodDelete, "/v1/conversations/"+c.key, c.key, "", noProblem(&p))
				if err != nil || status != http.StatusNoContent {
					t.Errorf("%s: got %d, %v, %+v", c.key, status, err, p)
				}
			}
			for _, m := range u.replicas {
				u.stop(m)
			}
			u.replicas = nil
			if n := containers(t, host, drillOwner); n != 0 {
				t.Errorf("%d containers are left", n)
			}
		})
	}
}
