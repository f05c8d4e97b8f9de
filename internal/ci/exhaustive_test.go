package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// repository makes the root of this repository the working directory, and returns its packages by
// directory.
func repository(t *testing.T) (byDir map[string]*testPackage, dirs map[string]bool) {
	t.Helper()
	t.Chdir("../..")
	packages, err := testPackages(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	if dirs, err = packageDirs(t.Context()); err != nil {
		t.Fatal(err)
	}
	byDir = map[string]*testPackage{}
	for _, p := range packages {
		byDir[p.dir] = p
	}
	return byDir, dirs
}

func TestAffects(t *testing.T) {
	byDir, dirs := repository(t)
	for _, tt := range []struct {
		name     string
		yes, not []string
	}{
		{"go.sum", []string{"internal/wire", "docker"}, nil},
		{"internal/wire/frame.go", []string{"internal/wire", "docker", "runner"}, []string{"executor", "pyodide/internal/confine"}},
		{"runner/internal/program/none.py", []string{"runner", "docker", "e2b", "flymachines"}, []string{"pyodide", "executor/router"}},
		{"docker/none_test.go", []string{"docker"}, []string{"e2b", "pyodide"}},
		{"conformance/conformancetest/testdata/faults.json", []string{"conformance/conformancetest", "pyodide"}, []string{"executor"}},
		{"e2b/testdata/none.json", []string{"e2b", "backends/all"}, []string{"docker"}},
		{"docker/image/none/Dockerfile", []string{"docker", "e2b"}, []string{"pyodide"}},
		{"internal/ci/images.go", []string{"internal/ci", "docker", "flymachines"}, []string{"pyodide"}},
		{"docs/security/none.md", []string{".", "docker", "pyodide", "internal/ci"}, []string{"e2b"}},
		{"CHANGELOG.md", []string{".", "internal/ci"}, []string{"docker", "pyodide", "e2b"}},
	} {
		for _, dir := range tt.yes {
			if !affects(tt.name, byDir[dir], dirs) {
				t.Errorf("%s does not affect %s", tt.name, dir)
			}
		}
		for _, dir := range tt.not {
			if affects(tt.name, byDir[dir], dirs) {
				t.Errorf("%s affects %s", tt.name, dir)
			}
		}
	}
}

// Files above a package that its tests name are among its inputs.
func TestReadsAreKnown(t *testing.T) {
	byDir, dirs := repository(t)
	above := regexp.MustCompile(`"((?:\.\./)+[^"]+)"`)
	names, err := tracked(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		p := byDir[path.Dir(name)]
		if p == nil || !strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range above.FindAllSubmatch(b, -1) {
			to := path.Join(p.dir, string(m[1]))
			if strings.HasPrefix(to, "../") {
				continue // code of a sandbox names it
			}
			if info, err := os.Stat(to); err != nil || info.IsDir() {
				continue
			}
			if found++; !affects(to, p, dirs) {
				t.Errorf("%s reads %s: add it to reads in affected.go", name, to)
			}
		}
	}
	if found < 3 {
		t.Errorf("found %d files, want some", found)
	}
}

func TestChanged(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=n", "-c", "user.email=n@example.org"}, args...)
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q", "-b", "main")
	for _, name := range []string{"same", "committed", "edited", "gone", "moved"} {
		write(name, name)
	}
	git("add", ".")
	git("commit", "-qm", "1")
	git("checkout", "-qb", "branch")
	write("committed", "other")
	git("mv", "moved", "to")
	git("commit", "-qam", "2")
	git("checkout", "-q", "main")
	write("same", "of main, since the branches parted")
	git("commit", "-qam", "3")
	git("checkout", "-q", "branch")
	write("edited", "other")
	write("new", "new")
	if err := os.Remove("gone"); err != nil {
		t.Fatal(err)
	}
	got, err := changed(t.Context(), "main")
	slices.Sort(got)
	if want := []string{"committed", "edited", "gone", "moved", "new", "to"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := changed(t.Context(), "none"); err == nil {
		t.Error("a revision that there is not: no error")
	}
}

func TestShards(t *testing.T) {
	var units []unit
	for i, minutes := range []float64{9, 7, 5, 3, 3, 1, 1, 0.5} {
		units = append(units, unit{name: string(rune('a' + i)), minutes: minutes})
	}
	packages := map[string]*testPackage{"d": {dir: "d", deps: map[string]bool{modulePath + "/docker/dockertest": true}}}
	for i := range units[:3] { // they take turns at the engine
		units[i].run, units[i].p = "TestA", packages["d"]
	}
	seen, turned := "", slices.Clone(units)
	slices.Reverse(turned)
	for i := 1; i <= 3; i++ {
		var names [2]string
		for j, all := range [][]unit{units, turned} {
			mine := shard(slices.Clone(all), i, 3)
			for _, u := range mine {
				names[j] += u.name
			}
			if wall := wallMinutes(mine); wall < 5 || wall > 9 {
				t.Errorf("shard %d takes %.1f minutes, of 29.5 in two lanes", i, wall)
			}
		}
		if names[0] != names[1] {
			t.Errorf("shard %d is %s, and %s in another order", i, names[0], names[1])
		}
		seen += names[0]
	}
	all := strings.Split(seen, "")
	slices.Sort(all)
	if strings.Join(all, "") != "abcdefgh" {
		t.Errorf("got %s, want each unit once", seen)
	}
}

// What has passed is not repeated until one of its inputs changes.
func TestInputs(t *testing.T) {
	p, dirs := &testPackage{path: modulePath + "/a", dir: "a", deps: map[string]bool{modulePath + "/a": true, modulePath + "/b": true}}, map[string]bool{".": true, "a": true, "b": true, "c": true}
	files := func(name string) map[string]string {
		all := map[string]string{"a/a.go": "1", "a/testdata/x": "1", "b/b.go": "1", "b/b_test.go": "1", "c/c.go": "1", "README.md": "1", "go.mod": "1"}
		if name != "" {
			all[name] = "2"
		}
		return all
	}
	key := inputs(p, files(""), dirs, "machine", "run")
	for name, same := range map[string]bool{"": true, "c/c.go": true, "README.md": true, "b/b_test.go": true, "a/a.go": false, "a/testdata/x": false, "a/testdata/new": false, "b/b.go": false, "go.mod": false} {
		if got := inputs(p, files(name), dirs, "machine", "run") == key; got != same {
			t.Errorf("%q has changed: the same inputs %v, want %v", name, got, same)
		}
	}
	if inputs(p, files(""), dirs, "other", "run") == key || inputs(p, files(""), dirs, "machine", "other") == key {
		t.Error("the machine or the selection makes no difference")
	}
	dir := t.TempDir()
	if _, err := recall(dir, key); err == nil {
		t.Error("it is known to have passed")
	}
	if err := remember(dir, key, pass{3, time.Now()}); err != nil {
		t.Fatal(err)
	}
	if got, err := recall(dir, key); err != nil || got.Passed != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The twenty parts of continuous integration are of about equal length, and short enough.
func TestParts(t *testing.T) {
	t.Chdir("../..")
	const parts, longest = 20, 15.0 // beside three minutes of preparation
	units, err := allUnits(t.Context(), options{packages: everything, fuzzTime: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var walls []float64
	sum := 0.0
	for k := range parts {
		walls = append(walls, wallMinutes(shard(units, k+1, parts)))
		sum += walls[k]
	}
	t.Logf("minutes: %.1f", walls)
	for k, wall := range walls {
		if wall > longest || wall > 1.3*sum/parts {
			t.Errorf("part %d takes %.1f minutes, and all of them %.1f", k+1, wall, sum)
		}
	}
}
