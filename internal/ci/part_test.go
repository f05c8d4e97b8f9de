package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestPart(t *testing.T) {
	dir, shallow := t.TempDir(), t.TempDir()
	git := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=n", "-c", "user.email=n@example.org"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git(dir, "init", "-q", "-b", "main")
	for n := 1; n <= 4; n++ {
		git(dir, "commit", "-q", "--allow-empty", "-m", "next")
		if k, why, err := part(t.Context(), dir, 3); err != nil || k != n%3+1 || !strings.HasPrefix(why, strconv.Itoa(n)+" commits") {
			t.Errorf("%d commits: got part %d by %s, %v", n, k, why, err)
		}
	}
	git(dir, "checkout", "-q", "-b", "side")
	git(dir, "commit", "-q", "--allow-empty", "-m", "of another line")
	git(dir, "checkout", "-q", "main")
	git(dir, "merge", "-q", "--no-ff", "-m", "merge", "side")
	if k, why, err := part(t.Context(), dir, 3); err != nil || k != 5%3+1 {
		t.Errorf("a merge: got part %d by %s, %v", k, why, err)
	}

	git(shallow, "clone", "-q", "--depth=1", "file://"+dir, ".")
	name := git(shallow, "rev-parse", "HEAD")[:8]
	n, err := strconv.ParseUint(name, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	if k, why, err := part(t.Context(), shallow, 20); err != nil || k != int(n%20)+1 || !strings.Contains(why, name) || !strings.Contains(why, "shallow") {
		t.Errorf("a shallow clone: got part %d by %s, %v", k, why, err)
	}
}
