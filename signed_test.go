package execbroker_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSignedTags follows SECURITY.md: it signs a release and checks it, in a new repository of a
// maintainer with a passphrase. What is not signed, or by somebody else, or was changed, fails.
func TestSignedTags(t *testing.T) {
	for _, name := range []string{"sh", "git", "ssh-keygen", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	page := readFile(t, "SECURITY.md")
	check, sign := shellBlocks(t, page, "### Check a release"), shellBlocks(t, page, "### Sign a release")
	if len(check) != 2 || len(sign) != 2 {
		t.Fatalf("got %d blocks that check and %d that sign, want two of each", len(check), len(sign))
	}
	home, clone := t.TempDir(), t.TempDir()
	ask := filepath.Join(home, "ask")
	writeFile(t, ask, "#!/bin/sh\necho 'of some words'\n", 0o755)
	env := append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "SSH_AUTH_SOCK=", "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	sh := func(dir, script string) error {
		c := exec.CommandContext(t.Context(), "sh", "-ec", script)
		c.Dir, c.Env = dir, env
		out, err := c.CombinedOutput()
		t.Logf("%s\n%s", script, out)
		return err
	}
	works := func(dir, script string) {
		t.Helper()
		if err := sh(dir, script); err != nil {
			t.Fatalf("%v: %s", err, script)
		}
	}
	fails := func(dir, script string) {
		t.Helper()
		if sh(dir, script) == nil {
			t.Errorf("it passes: %s", script)
		}
	}
	const file = "execbroker_0.1.0_linux_amd64.deb"
	works(clone, "git init -q; mkdir -p docs/security dist; mkdir -m 700 ~/.ssh")
	works(clone, sign[0])
	works(clone, `echo text > dist/`+file+`; echo "\"gitCommit\": \"$(git rev-parse HEAD)\"" > dist/provenance.intoto.json; cd dist; sha256sum * > SHA256SUMS`)
	works(clone, sign[1])
	works(clone, check[0])
	download := t.TempDir()
	works(clone, "cp dist/* "+download)
	check[1] = "cd " + clone + "\n" + check[0] + "cd " + download + "\n" + check[1]
	works(download, check[1])

	again := regexp.MustCompile(`v0\.1\.0`)
	works(clone, "git tag -a -m v0.1.1 v0.1.1")
	fails(clone, again.ReplaceAllString(check[0], "v0.1.1"))
	works(clone, "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/other; git -c user.signingKey=$HOME/.ssh/other.pub tag -s -m v0.1.2 v0.1.2")
	fails(clone, again.ReplaceAllString(check[0], "v0.1.2"))
	works(clone, "git cat-file tag v0.1.0 | sed 's/^tag v0.1.0/tag v0.1.3/' | git hash-object -t tag -w --stdin > id; git update-ref refs/tags/v0.1.3 $(cat id)")
	fails(clone, again.ReplaceAllString(check[0], "v0.1.3"))
	works(download, "cp SHA256SUMS before; echo >> SHA256SUMS")
	fails(download, check[1])
	works(download, "mv before SHA256SUMS; echo more >> "+file)
	fails(download, check[1])
	works(download, "echo text > "+file+"; ssh-keygen -Y sign -q -f ~/.ssh/other -n file < SHA256SUMS > SHA256SUMS.sig")
	fails(download, check[1])
}

// shellBlocks returns the commands below a heading.
func shellBlocks(t *testing.T, page, heading string) (blocks []string) {
	t.Helper()
	_, section, ok := strings.Cut(page, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
