package guides

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/server"
)

// TestIncidents follows the pages about incidents as TestGuides follows guides, with users who talk
// to the server meanwhile. What a page marks happens where it marks it.
func TestIncidents(t *testing.T) {
	engine, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	bin := program(t)
	stand(t, engine, dockertest.Trixie, "docker.io/library/python:3.13-slim")
	t.Run("provider-down", func(t *testing.T) { providerDown(t, bin, engine) })
	t.Run("engine-silent", func(t *testing.T) { engineSilent(t, bin, engine) })
	t.Run("engine-full", func(t *testing.T) { engineFull(t, bin, engine) })
	t.Run("leaks", func(t *testing.T) { leaks(t, bin, engine) })
	t.Run("runaway-costs", func(t *testing.T) { runawayCosts(t, bin, engine) })
	t.Run("disk-full", func(t *testing.T) { diskFull(t, bin, engine) })
	t.Run("restore", func(t *testing.T) { restore(t, bin, engine) })
	t.Run("restore-redis", func(t *testing.T) { restoreRedis(t, bin, engine) })
	t.Run("restore-postgresql", func(t *testing.T) { restorePostgreSQL(t, bin, engine) })
}

// rehearse follows the page of an incident.
func rehearse(t *testing.T, name, bin, engine string, happens map[string]func(*scene)) {
	t.Helper()
	stage(t, name, bin, engine, guide{happens: happens}, strings.NewReplacer())
}

// stage follows a page with addresses of others than those of the page.
func stage(t *testing.T, name, bin, engine string, g guide, addresses *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile("incidents/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	steps := parse(addresses.Replace(string(text)))
	for _, s := range steps {
		if s.why != "" {
			t.Errorf("%s.md:%d: not run: %s", name, s.line, s.why)
		}
	}
	follow(t, name, g, steps, bin, engine)
}

// owned removes the sandboxes of an owner after the test: conversations outlive their server.
func owned(t *testing.T, engine, owner string) {
	t.Helper()
	remove := func() {
		c, err := client.New(client.WithHost(engine))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := context.WithoutCancel(t.Context())
		all, err := dockertest.List(ctx, engine, driver.LabelOwner+"="+owner)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			if _, err := c.ContainerRemove(ctx, i.ID, client.ContainerRemoveOptions{Force: true}); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
				t.Error(err)
			}
		}
	}
	remove() // what a run has left that was killed
	t.Cleanup(remove)
}

// containers returns the names of the sandboxes of an owner.
func containers(s *scene, engine, owner string) []string {
	names, err := dockertest.Containers(s.ctx, engine, driver.LabelOwner+"="+owner)
	if err != nil {
		s.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// cable is a way to the engine that can be cut.
func cable(t *testing.T, engine string) *dockertest.Cable {
	t.Helper()
	c, err := dockertest.NewCable(engine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func providerDown(t *testing.T, bin, engine string) {
	owned(t, engine, "shop-outage")
	way := cable(t, engine)
	rehearse(t, "provider-down", bin, way.Host, map[string]func(*scene){
		"users talk":                      talk,
		"the engine is away":              func(*scene) { way.Cut() },
		"the users go on at the fallback": atTheFallback,
		"the engine is back":              func(*scene) { way.Mend() },
		"the users go on":                 func(s *scene) { s.users.goOn() },
	})
}

// atTheFallback waits until each user goes on at the fallback, from a checkpoint.
func atTheFallback(s *scene) {
	s.users.until("goes on at the fallback", func(u *user) bool { return u.on["local"] > 0 })
	s.users.each(func(u *user) {
		if len(u.moves) != 1 || u.moves[0].Why != sessions.LossUnavailable || u.moves[0].Kept == nil || u.moves[0].Kept.Refused != "" {
			s.Errorf("%s: got another sandbox %+v", u.subject, u.moves)
		}
	})
}

func engineSilent(t *testing.T, bin, engine string) {
	owned(t, engine, "shop-silent")
	way := cable(t, engine)
	rehearse(t, "engine-silent", bin, way.Host, map[string]func(*scene){
		"users talk": func(s *scene) {
			talk(s)
			s.users.each(func(u *user) {
				if u.on["box"] == 0 {
					s.Fatalf("%s: got another backend from the beginning: %v", u.subject, u.on)
				}
			})
		},
		"the engine takes connections and does not answer": func(*scene) { way.Hush() },
		"the users go on at the fallback":                  atTheFallback,
		"the engine answers":                               func(*scene) { way.Mend() },
		"the users go on":                                  func(s *scene) { s.users.goOn() },
	})
}

// diskFull has a disk of some MiB for the store, and something else that fills it.
func diskFull(t *testing.T, bin, engine string) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a disk")
	}
	var filler string
	rehearse(t, "disk-full", bin, engine, map[string]func(*scene){
		"data is a small disk": func(s *scene) {
			data := filepath.Join(s.dir, "data")
			if err := os.Mkdir(data, 0o755); err != nil {
				s.Fatal(err)
			}
			if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size=16m"); err != nil {
				s.Skip(err)
			}
			s.Cleanup(func() {
				s.sh.end(s.T)
				if err := unix.Unmount(data, 0); err != nil {
					s.Error(err)
				}
			})
			filler = filepath.Join(data, "filler")
		},
		"users talk": talk,
		"the disk is full": func(s *scene) {
			f, err := os.Create(filler)
			if err != nil {
				s.Fatal(err)
			}
			defer f.Close()
			for chunk := make([]byte, 4096); err == nil; {
				_, err = f.Write(chunk)
			}
			if !errors.Is(err, unix.ENOSPC) {
				s.Fatal(err)
			}
			s.users.until("is refused", func(u *user) bool { return u.kinds["unavailable"] > 0 })
		},
		"there is room again": func(s *scene) {
			if err := os.Remove(filler); err != nil {
				s.Fatal(err)
			}
		},
		"the users go on in the same sandboxes": func(s *scene) {
			s.users.goOn()
			s.users.same()
		},
	})
}

func engineFull(t *testing.T, bin, engine string) {
	owned(t, engine, "shop-full")
	rehearse(t, "engine-full", bin, engine, map[string]func(*scene){
		"users talk": talk,
		"the users go on": func(s *scene) {
			s.users.goOn()
			s.users.same()
		},
	})
}

func leaks(t *testing.T, bin, engine string) {
	owned(t, engine, "shop-leaks")
	var used, all []string
	rehearse(t, "leaks", bin, engine, map[string]func(*scene){
		"users talk": func(s *scene) {
			talk(s)
			used = containers(s, engine, "shop-leaks")
		},
		"users have sessions without a conversation": func(s *scene) {
			for _, u := range s.users.all {
				s.users.open(u)
			}
			all = containers(s, engine, "shop-leaks")
			if len(used) != 2 || len(all) != 4 {
				s.Fatalf("got sandboxes %v, %v with sessions", used, all)
			}
		},
		"the server is killed": func(s *scene) { s.kill() },
		"only the sandboxes of conversations are left": func(s *scene) {
			if left := containers(s, engine, "shop-leaks"); !slices.Equal(left, used) {
				s.Errorf("got %v of %v, want those of conversations: %v", left, all, used)
			}
		},
		"the users go on in the same sandboxes": func(s *scene) {
			s.users.goOn()
			s.users.same()
		},
	})
}

func runawayCosts(t *testing.T, bin, engine string) {
	owned(t, engine, "shop-costs")
	const eve = "key-of-the-user-eve"
	var ended <-chan string
	rehearse(t, "runaway-costs", bin, engine, map[string]func(*scene){
		"users talk": talk,
		"eve runs code without an end": func(s *scene) {
			ctx, cancel := context.WithCancel(s.ctx)
			s.Cleanup(cancel)
			for range 3 {
				if res, problem, err := s.users.run(ctx, eve, "/v1/run", server.RunRequest{Language: executor.Python, Code: "6*7"}); err != nil || problem.Kind != "" {
					s.Fatalf("got %+v, %+v, %v", res, problem, err)
				}
			}
			ended = s.users.endless(ctx, eve, "/v1/conversations/job/run/stream")
		},
		"the code of eve has ended": func(s *scene) {
			if last := <-ended; !strings.Contains(last, `"status":"killed"`) {
				s.Errorf("got %s", last)
			}
		},
		"the users go on": func(s *scene) {
			s.users.goOn()
			s.users.same()
		},
	})
}

// lost are what happens around a store that is lost, and the copy that conversations go on from.
func lost(what string, lose func(*scene)) map[string]func(*scene) {
	var copied map[string]int
	return map[string]func(*scene){
		"users talk": func(s *scene) {
			talk(s)
			copied = s.users.sums()
		},
		"the users go on": func(s *scene) { s.users.goOn() },
		"the server is killed and " + what: func(s *scene) {
			s.kill()
			s.users.silent()
			lose(s)
		},
		"conversations go on from the copy": func(s *scene) { s.users.back(copied) },
	}
}

func restore(t *testing.T, bin, engine string) {
	rehearse(t, "restore", bin, engine, lost("the disk loses the store", func(s *scene) {
		for _, name := range []string{"sessions.db", "sessions.db-wal", "sessions.db-shm"} {
			if err := os.WriteFile(filepath.Join(s.dir, name), bytes.Repeat([]byte{0xff}, 1<<16), 0o600); err != nil {
				s.Fatal(err)
			}
		}
	}))
}

func restoreRedis(t *testing.T, bin, engine string) {
	rehearse(t, "restore-redis", bin, engine, lost("the disk loses the store", func(s *scene) {
		c, err := s.sh.dial(s.ctx, "tcp", "127.0.0.1:6390")
		if err != nil {
			s.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("SHUTDOWN NOSAVE\r\n")); err != nil {
			s.Fatal(err)
		}
		if said, err := io.ReadAll(c); err != nil || len(said) > 0 {
			s.Fatalf("got %q, %v, want the end of Redis", said, err)
		}
		if err := os.RemoveAll(filepath.Join(s.dir, "redis")); err != nil {
			s.Fatal(err)
		}
	}))
}

func restorePostgreSQL(t *testing.T, bin, engine string) {
	db := dbtest.Postgres(t)
	at, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := guide{host: true, happens: lost("the database is empty", func(*scene) { db.Empty() })}
	stage(t, "restore-postgresql", bin, engine, g, strings.NewReplacer("db.example:5432", at.Host, "the-password", db.Password))
}
