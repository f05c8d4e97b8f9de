package engine_test

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

var aliased = executor.Spec{Aliases: []string{"/mnt/data", "/home/user"}}

// TestNamesByAlias tests that an adapter never sees an alias, and that nothing but text decides
// what one is.
func TestNamesByAlias(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	f := c.session(t, aliased).Files()
	for in, want := range map[string]string{
		"/mnt/data":                "/workspace",
		"/mnt/data/":               "/workspace",
		"/mnt/data/a/b":            "/workspace/a/b",
		"/mnt//data/./a":           "/workspace/a",
		"/home/user/a":             "/workspace/a",
		"/mnt/data/home/user":      "/workspace/home/user",
		"/workspace/../mnt/data/a": "/workspace/a",
		"/mnt/data/..":             "/mnt",
		"/mnt/data/../a":           "/mnt/a",
		"/mnt/database":            "/mnt/database",
		"/mnt":                     "/mnt",
		"mnt/data/a":               "/workspace/mnt/data/a",
		"/home/user2":              "/home/user2",
	} {
		m.calls = nil
		_, err := f.Stat(t.Context(), in)
		wantError(t, skipNil(err, want), "files.stat", fs.ErrNotExist, executor.RanNo)
		if !slices.Equal(m.calls, []string{"stat " + want}) {
			t.Errorf("%q: got %q, want %q", in, m.calls, want)
		}
	}
}

// TestAliasesStay tests that what an alias is in or below stays, as the working directory does.
func TestAliasesStay(t *testing.T) {
	c := newCloud()
	m := withFiles(c)
	f := c.session(t, aliased).Files()
	for _, name := range []string{"/mnt/data", "/mnt", "/mnt/data/..", "/home", "/home/user", "/home/user/."} {
		wantError(t, f.Remove(t.Context(), name), "files.remove", fs.ErrInvalid, executor.RanNo)
		wantError(t, f.Rename(t.Context(), name, "x"), "files.rename", fs.ErrInvalid, executor.RanNo)
		wantError(t, f.Rename(t.Context(), "x", name), "files.rename", fs.ErrInvalid, executor.RanNo)
	}
	wantError(t, f.Rename(t.Context(), "/mnt/data/a", "/home/user/a/b"), "files.rename", fs.ErrInvalid, executor.RanNo)
	if len(m.calls) != 0 {
		t.Errorf("the adapter was asked: %q", m.calls)
	}
}

// TestRequestsByAlias tests directories and globs.
func TestRequestsByAlias(t *testing.T) {
	c := newCloud()
	var dir string
	var globs []string
	c.run = func(_ context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
		dir, globs = req.Dir, req.Artifacts.Globs
		return driver.Exit{}, emit(executor.Event{Kind: executor.EventStarted})
	}
	s := c.session(t, aliased)
	asked := []string{"*.csv", "/mnt/data/*.txt", "/workspace/a/**", "/home/user//x*"}
	req := executor.Request{Code: "x", Dir: "/home/user/sub", Artifacts: &executor.ArtifactRequest{Globs: slices.Clone(asked)}}
	if _, err := s.Run(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"*.csv", "*.txt", "a/**", "x*"}; dir != "/workspace/sub" || !slices.Equal(globs, want) {
		t.Errorf("got %q and %q, want %q", dir, globs, want)
	}
	if !slices.Equal(req.Artifacts.Globs, asked) {
		t.Errorf("the request of the caller has become %q", req.Artifacts.Globs)
	}
	globs = nil
	req.Artifacts = &executor.ArtifactRequest{Globs: []string{"/etc/a/*", "/mnt/*/x", "/mnt/data/", "a"}}
	_, err := s.Run(t.Context(), req, nil)
	wantError(t, err, "run", executor.ErrInvalid, executor.RanNo)
	for _, g := range req.Artifacts.Globs[:3] {
		if !strings.Contains(err.Error(), `"`+g+`"`) {
			t.Errorf("%q is not in %v", g, err)
		}
	}
}

// TestAliasesOfOthers tests what tells the aliases of a session that this process did not create.
func TestAliasesOfOthers(t *testing.T) {
	for label, want := range map[string][]string{
		"/mnt/data,/home/user": {"/mnt/data", "/home/user"},
		"":                     nil,
		"/etc":                 nil,
		"/mnt/data,/mnt/data":  nil,
		"/workspace/x":         nil,
		",":                    nil,
	} {
		c := newCloud()
		withFiles(c)
		x := c.open(t)
		h := create(t, x, aliased).Info().Handle
		c.boxes[h.Session].labels[driver.LabelAliases] = label
		s, err := x.Attach(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Info().Aliases; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", label, got, want)
		}
		for i, err := range x.Sessions(t.Context(), nil) {
			if err != nil || !slices.Equal(i.Aliases, want) {
				t.Errorf("%q: listed: got %q, %v, want %q", label, i.Aliases, err, want)
			}
		}
	}
}
