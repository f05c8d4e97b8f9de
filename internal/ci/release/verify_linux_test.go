package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// commandsOf returns the lines of the shell blocks below a heading of SECURITY.md.
func commandsOf(t *testing.T, heading string) (lines []string) {
	t.Helper()
	page, err := os.ReadFile("../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n### "+heading+"\n")
	if !ok {
		t.Fatalf("SECURITY.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(m[1]), "\n")...)
	}
	return lines
}

// A publisher has a clone, the key of releases, and that of somebody else.
type publisher struct {
	dir string // with clone, key and other
	env []string
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	for _, name := range []string{"sh", "git", "ssh-keygen", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	p := &publisher{dir, append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "SSH_AUTH_SOCK=", "P="+dir, "commit=",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.example")}
	p.sh(t, dir, `for k in key other; do ssh-keygen -q -t ed25519 -N '' -f $k; done
mkdir -p clone/docs/security; cd clone; git init -q; git config gpg.format ssh; git config user.signingKey $P/key.pub
echo "releases@execbroker namespaces=\"git,file\" $(cat $P/key.pub)" > docs/security/allowed_signers
git add docs; git commit -q -m key`)
	return p
}

func (p *publisher) sh(t *testing.T, dir, script string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-ec", script)
	c.Dir, c.Env = dir, p.env
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// publish makes the files of a version, with a content that is its own, tags a commit of its own
// and signs both.
func (p *publisher) publish(t *testing.T, version string) {
	t.Helper()
	clone, dist := filepath.Join(p.dir, "clone"), filepath.Join(p.dir, version)
	commit := p.sh(t, clone, "git commit -q --allow-empty -m "+version+"; git tag -s -m v"+version+" v"+version+"; git rev-parse HEAD")
	m := maker{out: dist, version: version, targets: []string{"linux/amd64"}, source: source{commit: commit}}
	for _, suffix := range []string{".deb", ".tar.gz"} {
		write(t, m.file("linux/amd64", suffix), version+suffix)
	}
	if err := m.provenance(); err != nil {
		t.Fatal(err)
	}
	p.sums(t, dist)
	p.sh(t, dist, "ssh-keygen -Y sign -q -f $P/key -n file SHA256SUMS")
}

func (p *publisher) sums(t *testing.T, dist string) {
	t.Helper()
	if err := (&maker{out: dist}).sums(); err != nil {
		t.Fatal(err)
	}
}

// TestOtherFiles gives a user something else than what was published. The commands that SECURITY.md
// tells users to run fail, and exactly those that are there for it.
func TestOtherFiles(t *testing.T) {
	t.Parallel()
	const tag, commit, signature, sum, provenance, built = "verify-tag", "rev-parse", "ssh-keygen", ".deb$", "provenance.intoto.json$", "gitCommit"
	names := []string{"git config", tag, commit, "signers=", signature, sum, provenance, built}
	guide, err := os.ReadFile("../../../docs/guides/install.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := commandsOf(t, "Check a release")
	if len(commands) != len(names) {
		t.Fatalf("got %q, want %d commands", commands, len(names))
	}
	script := "cd $P/clone\n"
	for i, line := range commands {
		if !strings.Contains(line, names[i]) {
			t.Fatalf("got the command %q, want that with %s", line, names[i])
		}
		if names[i] == signature {
			script += "cd $P/download\n"
		}
		if i >= slices.Index(names, signature) && !strings.Contains(string(guide), "\n$ "+line+"\n") {
			t.Errorf("docs/guides/install.md has no line %q", line)
		}
		script += line + " >&2 || echo '" + names[i] + "'\n"
	}
	const old, deb, sums = "0.0.9", "execbroker_0.1.0_linux_amd64.deb", "SHA256SUMS"
	oldDeb := strings.Replace(deb, "0.1.0", old, 1)
	for name, c := range map[string]struct {
		attack string // in the directory of what was downloaded
		fails  []string
	}{
		"nothing":                           {"", nil},
		"changed-file":                      {"echo more >> " + deb, []string{sum}},
		"changed-file-and-checksum":         {"echo more >> " + deb + "; sha256sum * > new; grep -v new new > " + sums, []string{signature}},
		"changed-and-signed-by-another":     {"echo more >> " + deb + "; sha256sum e* p* > " + sums + "; ssh-keygen -Y sign -q -f $P/other -n file < " + sums + " > " + sums + ".sig", []string{signature}},
		"changed-and-with-signers":          {"echo more >> " + deb + "; sha256sum e* p* > " + sums + "; ssh-keygen -Y sign -q -f $P/other -n file < " + sums + " > " + sums + ".sig; echo \"releases@execbroker $(cat $P/other.pub)\" > allowed_signers", []string{signature}},
		"swapped-checksums":                 {"awk '{d[NR]=$1; n[NR]=$2} END {print d[2]\"  \"n[1]; print d[1]\"  \"n[2]; for (i=3; i<=NR; i++) print d[i]\"  \"n[i]}' " + sums + " > new; ! cmp -s new " + sums + "; mv new " + sums, []string{signature, sum}},
		"swapped-files":                     {"mv " + deb + " x; mv execbroker_0.1.0_linux_amd64.tar.gz " + deb + "; mv x execbroker_0.1.0_linux_amd64.tar.gz", []string{sum}},
		"list-of-another-release":           {"cp $P/" + old + "/" + sums + "* $P/" + old + "/prov* .", []string{sum, built}},
		"list-and-files-of-another-release": {"cp $P/" + old + "/" + sums + "* $P/" + old + "/prov* .; cp $P/" + old + "/" + oldDeb + " " + deb, []string{sum, built}},
		"list-alone-of-another-release":     {"cp $P/" + old + "/" + sums + "* .", []string{sum, provenance}},
		"signature-of-another-release":      {"cp $P/" + old + "/" + sums + ".sig .", []string{signature}},
		"signature-for-another-purpose":     {"rm " + sums + ".sig; ssh-keygen -Y sign -q -f $P/key -n git " + sums, []string{signature}},
		"no-signature":                      {"rm " + sums + ".sig", []string{signature}},
		"provenance-of-another-release":     {"cp $P/" + old + "/prov* .", []string{provenance, built}},
		"changed-provenance":                {"sed -i s/linux_amd64.deb/linux_arm64.deb/ provenance.intoto.json", []string{provenance}},
		"tag-of-another-release":            {"cd $P/clone; git update-ref refs/tags/v0.1.0 $(git rev-parse refs/tags/v" + old + ")", []string{tag, built}},
		"all-of-another-release":            {"cp $P/" + old + "/" + sums + "* $P/" + old + "/prov* .; cp $P/" + old + "/" + oldDeb + " " + deb + "; cd $P/clone; git update-ref refs/tags/v0.1.0 $(git rev-parse refs/tags/v" + old + ")", []string{tag, sum}},
		"tag-without-a-signature":           {"cd $P/clone; git tag -f -a -m x v0.1.0 'v0.1.0^{commit}'", []string{tag}},
		"tag-by-another-of-another-commit":  {"cd $P/clone; git commit -q --allow-empty -m evil; git -c user.signingKey=$P/other.pub tag -f -s -m x v0.1.0", []string{tag, built}},
		"no-tag":                            {"cd $P/clone; git tag -d v0.1.0", []string{tag, commit, built}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPublisher(t)
			p.publish(t, old)
			p.publish(t, "0.1.0")
			p.sh(t, p.dir, "cp -r 0.1.0 download")
			p.sh(t, filepath.Join(p.dir, "download"), c.attack)
			run := exec.CommandContext(t.Context(), "sh", "-c", script)
			run.Dir, run.Env = p.dir, p.env
			var said bytes.Buffer
			run.Stderr = &said
			out, err := run.Output()
			if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, c.fails) {
				t.Errorf("got %q, %v, want these to fail: %q\n%s", got, err, c.fails, said.Bytes())
			}
		})
	}

	// What is easier to say is not enough: this is why the commands name the file and the tag.
	t.Run("easier", func(t *testing.T) {
		t.Parallel()
		p := newPublisher(t)
		p.publish(t, old)
		p.publish(t, "0.1.0")
		p.sh(t, filepath.Join(p.dir, "clone"), "git update-ref refs/tags/v0.1.0 $(git rev-parse refs/tags/v"+old+"); git config gpg.ssh.allowedSignersFile docs/security/allowed_signers; git verify-tag v0.1.0")
		p.sh(t, filepath.Join(p.dir, "0.1.0"), "echo more >> "+deb+"; cp ../"+old+"/"+sums+" ../"+old+"/prov* .; sha256sum --check --ignore-missing "+sums)
	})
}

// small makes an image that has no runtime and a program that is only text.
func small(t *testing.T, version, program string) string {
	t.Helper()
	dir := t.TempDir()
	m := maker{out: filepath.Join(dir, "out"), work: filepath.Join(dir, "work"), version: version, source: source{date: date}}
	m.extract = func(_ context.Context, arch, to string, packages ...string) error {
		for _, name := range packages {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			fmt.Fprintf(z, "%s (1) stable\n", name)
			if err := z.Close(); err != nil {
				return err
			}
			write(t, filepath.Join(to, "usr/share/doc", name, "changelog.gz"), b.String())
			write(t, filepath.Join(to, "usr/share/doc", name, "copyright"), "")
		}
		for _, name := range append(libraries, triplets[arch].loader) {
			write(t, filepath.Join(to, "usr/lib", triplets[arch].libraries, name), name)
		}
		for i := range 50 {
			write(t, filepath.Join(to, "usr/share/ca-certificates/mozilla", fmt.Sprintf("%d.crt", i)), "")
		}
		return nil
	}
	write(t, m.program("linux/amd64"), program)
	write(t, filepath.Join(m.runtimeDir("amd64"), "usr/lib/x"), "")
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.image(t.Context(), "amd64"); err != nil {
		t.Fatal(err)
	}
	return m.file("linux/amd64", ".oci.tar")
}

// TestOtherImage gives the name of the image of a release to another image. The command of
// SECURITY.md that compares an engine's image with the file of the release fails.
func TestOtherImage(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("DOCKER_HOST", host)
	commands := commandsOf(t, "Check an image")
	if len(commands) != 1 {
		t.Fatalf("got %q, want one command", commands)
	}
	version := fmt.Sprintf("0.0.0-test-%d", os.Getpid()) // an engine is shared
	image := imageName + ":" + version
	command := strings.ReplaceAll(commands[0], "0.1.0", version)
	file, other := small(t, version, "one"), small(t, version, "another")
	for _, c := range []struct {
		name, does string
		works      bool
	}{
		{"none", "true", false},
		{"its own", "docker load --quiet --input " + file, true},
		{"of another program", "docker load --quiet --input " + other, false},
		{"its own again", "docker load --quiet --input " + file, true},
		{"of other layers", "tar -c --files-from /dev/null | docker import - " + image, false},
	} {
		in(t, t.TempDir(), "sh", "-ec", c.does)
		if c.name != "none" {
			id := strings.TrimSpace(in(t, ".", "docker", "image", "inspect", "--format", "{{.Id}}", image))
			t.Cleanup(func() { exec.Command("docker", "image", "rm", "--force", id).Run() }) //nolint:errcheck,noctx // what is left is seen in the engine
		}
		check := exec.CommandContext(t.Context(), "sh", "-c", command)
		check.Dir = filepath.Dir(file)
		if out, err := check.CombinedOutput(); (err == nil) != c.works {
			t.Errorf("%s: got %v, want success %v\n%s", c.name, err, c.works, out)
		}
	}
}
