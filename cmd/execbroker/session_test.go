package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/sqlite"
	"github.com/execbroker/execbroker/internal/fake"
)

// shared serves a backend to processes, and returns a configuration that names it.
func shared(t *testing.T) (b *fake.Backend, config string) {
	t.Helper()
	b = fake.New(fake.Options{})
	address, stop, err := fake.Serve(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return b, write(t, t.TempDir(), "shared.yaml", "backends:\n  box: {type: fake, address: \""+address+"\"}\n")
}

// hold creates a sandbox whose creator is connected to it until the test ends.
func hold(t *testing.T, b *fake.Backend, owner string) (id string) {
	t.Helper()
	x, err := b.Open(driver.Env{Name: "box", Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Info().Handle.Session
}

// leave creates sandboxes that outlive their creator.
func leave(t *testing.T, b *fake.Backend, owner string, specs ...executor.Spec) (handles []executor.Handle) {
	t.Helper()
	x, err := b.Open(driver.Env{Name: "box", Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		s, err := x.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, s.Info().Handle)
		if err := s.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	b.Cut(time.Hour)
	return handles
}

func TestSessionList(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	if got := run(t, exitOK, "session", "ls", "--config", config).out.String(); got != "" {
		t.Errorf("got %q of no sandbox", got)
	}
	hs := leave(t, b, "shop", executor.Spec{Labels: map[string]string{"conversation": "42"}}, executor.Spec{Template: "data-science"})
	leave(t, b, "other", executor.Spec{})
	contains(t, run(t, exitOK, "session", "ls", "--config", config, "--owner", "nobody").err.String(), "execbroker: no sandboxes of nobody\n")
	contains(t, run(t, exitOK, "session", "ls", "--config", config, "--owner", "shop", "--json").out.String(), `"backend": "`, `"session": "`, `"age_seconds": `, `"state": "`, `"created": "`)
	got := run(t, exitOK, "session", "ls", "--config", config, "--owner", "shop").out.String()
	contains(t, got, "SESSION", hs[0].Session, "running", "conversation=42", hs[1].Session, "data-science")
	if n := strings.Count(got, "\n"); n != 3 {
		t.Errorf("got %d lines: %s", n, got)
	}
	var d sessionsDocument
	decode(t, run(t, exitOK, "session", "ls", "--config", config, "--owner", "shop", "--label", "conversation=42", "--json").out.Bytes(), &d)
	if len(d.Sessions) != 1 || d.Sessions[0].Handle.Session != hs[0].Session || d.Error != nil {
		t.Errorf("got %+v", d)
	}
	decode(t, run(t, exitOK, "session", "ls", "--config", config, "--owner", "nobody", "--json").out.Bytes(), &d)
	if len(d.Sessions) != 0 || d.Sessions == nil {
		t.Errorf("got %+v of nobody", d)
	}
}

func TestSessionKill(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	hs := leave(t, b, "shop", executor.Spec{}, executor.Spec{}, executor.Spec{}, executor.Spec{})
	p := run(t, exitOK, "session", "kill", "--config", config, "--owner", "shop", hs[0].Session, hs[1].Session[:12])
	if got, want := p.out.String(), "removed "+hs[0].Session+"\nremoved "+hs[1].Session+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	run(t, exitUsage, "session", "kill", "--config", config, "--owner", "shop", hs[0].Session)
	run(t, exitUsage, "session", "kill", "--config", config, "--owner", "shop", "")
	run(t, exitUsage, "session", "kill", "--config", config, "--owner", "other", hs[2].Session)
	if got := len(b.Sandboxes()); got != 2 {
		t.Errorf("got %d sandboxes, want 2", got)
	}
	var d sessionsDocument
	decode(t, run(t, exitOK, "session", "kill", "--config", config, "--owner", "shop", "--json", hs[2].String()).out.Bytes(), &d)
	if len(d.Removed) != 1 || d.Removed[0].Session != hs[2].Session {
		t.Errorf("got %+v", d)
	}
	if got := b.Sandboxes(); len(got) != 1 || got[0] != hs[3].Session {
		t.Errorf("got %v", got)
	}
}

func TestSessionReap(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	hs := leave(t, b, "shop", executor.Spec{})
	leave(t, b, "other", executor.Spec{})
	run(t, exitUsage, "session", "reap", "--config", config, "--owner", "shop")
	run(t, exitUsage, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "-1s")
	for _, dry := range []string{"--dry-run", "--dry-run=false"} {
		p := run(t, exitOK, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1h", dry)
		if p.out.String() != "" {
			t.Errorf("%s: got %q", dry, &p.out)
		}
		contains(t, p.err.String(), "execbroker: nothing to remove\n")
	}
	contains(t, run(t, exitOK, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns", "--dry-run").out.String(), hs[0].Session)
	if got := len(b.Sandboxes()); got != 2 {
		t.Errorf("got %d sandboxes after the dry run", got)
	}
	contains(t, run(t, exitOK, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns").out.String(), "removed "+hs[0].Session)
	if got := len(b.Sandboxes()); got != 1 {
		t.Errorf("got %d sandboxes, want that of the other owner", got)
	}
}

// Without a session store, too, sandboxes that a program is connected to are spared, unless the
// user wants them removed. One whose backend does not answer is spared with an error.
func TestSessionReapSparesWhatIsInUse(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	left := leave(t, b, "shop", executor.Spec{})[0].Session
	used := hold(t, b, "shop")
	reap := func(want int, more ...string) *process {
		t.Helper()
		return run(t, want, append([]string{"session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns"}, more...)...)
	}
	for _, more := range []string{"--dry-run", "--json"} {
		p := reap(exitOK, more)
		if more == "--dry-run" {
			contains(t, p.out.String(), left)
		}
		if strings.Contains(p.out.String(), used) {
			t.Errorf("%s: got %s with %s, which is in use", more, &p.out, used)
		}
		contains(t, p.err.String(), "in use within the last minute: "+used, "--force removes them")
	}
	if got := b.Sandboxes(); len(got) != 1 || got[0] != used {
		t.Errorf("got %q, want the one in use", got)
	}
	b.Fail(fake.OpLastContact, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
	contains(t, reap(exitInfrastructure).err.String(), "unavailable")
	if got := b.Sandboxes(); len(got) != 1 {
		t.Errorf("got %q, want the one that did not answer", got)
	}
	p := reap(exitOK, "--force")
	if contains(t, p.out.String(), "removed "+used); len(b.Sandboxes()) != 0 {
		t.Errorf("got %q after --force", b.Sandboxes())
	}
	b.Fail(fake.OpLastContact, -1, driver.Fail(executor.ErrUnsupported, executor.RanNo, nil))
	hold(t, b, "shop")
	if reap(exitOK); len(b.Sandboxes()) != 0 {
		t.Errorf("got %q where nobody can tell, want that the age decides", b.Sandboxes())
	}
}

// Sandboxes in the session store are spared.
func TestSessionReapSparesRecords(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	hs := leave(t, b, "shop", executor.Spec{})
	db := filepath.Join(t.TempDir(), "s.db")
	config = write(t, t.TempDir(), "c.yaml", read(t, config)+"sessions: {store: 'sqlite:"+db+"'}\n")
	store, err := sqlite.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Open(driver.Env{Name: hs[0].Backend, Owner: "shop", Instance: "ended"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := sessions.New(x, store, sessions.Options{Instance: "ended"})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := m.Acquire(t.Context(), "chat", executor.Spec{Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{lease.Release(), m.Close(t.Context()), x.Close(), store.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := run(t, exitOK, "session", "ls", "--config", config, "--owner", "shop").out.String()
	for _, line := range [][]string{{"SUBJECT", "CONVERSATION"}, {hs[0].Session, "-", "-"}, {lease.Info().Handle.Session, "ann", "chat"}} {
		if !regexp.MustCompile(strings.Join(line, " .* ")).MatchString(strings.ReplaceAll(got, "\n", " \n")) {
			t.Errorf("got\n%s\nwant a line with %q", got, line)
		}
	}
	var d sessionsDocument
	decode(t, run(t, exitOK, "session", "ls", "--config", config, "--owner", "shop", "--json").out.Bytes(), &d)
	if len(d.Sessions) != 2 || d.Sessions[0].holder != (holder{}) || d.Sessions[1].holder != (holder{"ann", "chat"}) {
		t.Errorf("got %+v", d.Sessions)
	}
	b.Cut(time.Hour)
	run(t, exitUsage, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns", "--force")
	got = run(t, exitOK, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns", "--dry-run").out.String()
	if contains(t, got, hs[0].Session); strings.Contains(got, lease.Info().Handle.Session) {
		t.Errorf("got %s, which has what the store names", got)
	}
	contains(t, run(t, exitOK, "session", "reap", "--config", config, "--owner", "shop", "--older-than", "1ns").out.String(), "removed "+hs[0].Session)
	if got := b.Sandboxes(); len(got) != 1 || got[0] != lease.Info().Handle.Session {
		t.Errorf("got %q, want what the store names", got)
	}
}

// TestSessionsOfSeveral tests that backends that cannot list or do not answer do not hide the
// sandboxes of others.
func TestSessionsOfSeveral(t *testing.T) {
	t.Parallel()
	b, config := shared(t)
	hs := leave(t, b, "shop", executor.Spec{})
	dir := t.TempDir()
	local := "  local: {type: fake, without: [list, attach, fencing]}\n"
	both := write(t, dir, "both.yaml", read(t, config)+local)
	p := run(t, exitOK, "session", "ls", "--config", both, "--owner", "shop")
	contains(t, p.out.String(), hs[0].Session)
	contains(t, p.err.String(), "cannot list sandboxes: local\n")
	contains(t, run(t, exitUsage, "session", "ls", "--config", both, "--backend", "local").err.String(), "not supported")

	down := write(t, dir, "down.yaml", read(t, config)+"  down: {type: fake, fail: sessions}\n")
	p = run(t, exitInfrastructure, "session", "ls", "--config", down, "--owner", "shop")
	contains(t, p.out.String(), hs[0].Session)
	contains(t, p.err.String(), "down", "unavailable")
	p = run(t, exitInfrastructure, "session", "ls", "--config", down, "--owner", "shop", "--json")
	var d sessionsDocument
	if decode(t, p.out.Bytes(), &d); len(d.Sessions) != 1 || d.Error == nil || d.Error.Kind != "unavailable" {
		t.Errorf("got %+v", d)
	}
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500 * time.Millisecond: "2s", 90 * time.Second: "2m", 3*time.Hour + 5*time.Minute: "3h5m", 50 * time.Hour: "2d",
	} {
		if got := round(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}
