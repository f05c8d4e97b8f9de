package release

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	oci "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/execbroker/execbroker/deploy/helm/helmtest"
	"github.com/execbroker/execbroker/docker/dockertest"
)

var only = flag.String("targets", strings.Join(targets, ","), "the systems that TestRelease makes programs for; linux/amd64 is among them")

// in runs a program and returns what it says; it has to succeed.
func in(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}

// made makes a release of the commit of a repository in a clone of its own.
func made(t *testing.T, repository, list string) (clone, dist string) {
	t.Helper()
	dir := t.TempDir()
	clone, dist = filepath.Join(dir, "clone"), filepath.Join(dir, "dist")
	in(t, repository, "git", "clone", "--quiet", "--no-hardlinks", ".", clone)
	t.Log(in(t, clone, "go", "run", "./internal/ci", "release", "-out", dist, "-targets", list))
	return clone, dist
}

var readmeBlock = regexp.MustCompile("(?s)<!-- tested: (\\w+) -->\n```\\w*\n(.*?)```\n")

// TestRelease makes a release and uses each of its files as its users do.
func TestRelease(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("DOCKER_HOST", host)
	clone, dist := made(t, "../../..", *only)
	entries, err := filepath.Glob(filepath.Join(dist, "*_linux_amd64.deb"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %q, %v", entries, err)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(entries[0]), "execbroker_"), "_linux_amd64.deb")
	readme, err := os.ReadFile(filepath.Join(clone, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, m := range readmeBlock.FindAllStringSubmatch(string(readme), -1) {
		blocks[m[1]] = m[2]
	}
	job := strings.Replace(blocks["first"], "go run ./cmd/execbroker run", "execbroker run", 1)
	if job == blocks["first"] || blocks["output"] == "" {
		t.Fatalf("README.md has another first command: %q", blocks["first"])
	}
	chart, err := os.ReadFile(filepath.Join(clone, "examples/analysis/testdata/seattle.svg"))
	if err != nil {
		t.Fatal(err)
	}

	t.Run("checksums", func(t *testing.T) { in(t, dist, "sha256sum", "--check", "--quiet", "--strict", sumsFile) })

	t.Run("programs", func(t *testing.T) {
		for _, target := range strings.Split(*only, ",") {
			suffix := map[bool]string{true: ".zip", false: ".tar.gz"}[strings.HasPrefix(target, "windows/")]
			name := "execbroker_" + version + "_" + strings.ReplaceAll(target, "/", "_")
			to, program := t.TempDir(), filepath.Join(name, "execbroker")
			if suffix == ".zip" {
				program += ".exe"
				in(t, to, "python3", "-m", "zipfile", "-e", filepath.Join(dist, name+suffix), to)
			} else {
				in(t, to, "tar", "-xf", filepath.Join(dist, name+suffix))
			}
			info, err := buildinfo.ReadFile(filepath.Join(to, program))
			if err != nil {
				t.Fatal(err)
			}
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			if got := settings["GOOS"] + "/" + settings["GOARCH"]; got != target || settings["CGO_ENABLED"] != "0" || settings["vcs.modified"] != "false" || info.Main.Version != "v"+version {
				t.Errorf("%s: got %s, version %s, %v", target, got, info.Main.Version, settings)
			}
			for _, file := range []string{"LICENSE", "completions/execbroker.bash", "completions/_execbroker", "completions/execbroker.fish", "completions/execbroker.ps1", "man/man1/execbroker-run.1"} {
				if info, err := os.Stat(filepath.Join(to, name, file)); err != nil || info.Size() == 0 {
					t.Errorf("%s: %s: %v", target, file, err)
				}
			}
			if target == "linux/amd64" {
				in(t, to, "bash", "-n", filepath.Join(name, "completions/execbroker.bash"))
				if got := in(t, to, filepath.Join(to, program), "version"); !strings.HasPrefix(got, "execbroker v"+version+", ") || !strings.Contains(got, "\ncommit "+settings["vcs.revision"]+"\n") {
					t.Errorf("got %s", got)
				}
			}
		}
	})

	t.Run("provenance", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(dist, provenanceFile))
		if err != nil {
			t.Fatal(err)
		}
		s, p := checkStatement(t, text)
		digests, err := digestsOf(dist)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Subject) != len(digests)-2 { // all but itself and the checksums
			t.Errorf("got %d subjects for %d files", len(s.Subject), len(digests))
		}
		for _, f := range s.Subject {
			if f.Digest["sha256"] != digests[f.Name] {
				t.Errorf("%s: got the digest %s, want %s", f.Name, f.Digest["sha256"], digests[f.Name])
			}
		}
		commit := strings.TrimSpace(in(t, clone, "git", "rev-parse", "HEAD"))
		if got := p.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"]; got != commit {
			t.Errorf("got the commit %s, want %s", got, commit)
		}
	})

	container := func(t *testing.T, image string, args ...string) string {
		t.Helper()
		return in(t, clone, "docker", append([]string{"run", "--rm", "--network", "none", "--volume", dist + ":/dist:ro", "--volume", clone + ":/src:ro", image, "sh", "-ec"}, args...)...)
	}

	t.Run("bare-debian", func(t *testing.T) {
		got := container(t, dockertest.Bare, `
rm /etc/dpkg/dpkg.cfg.d/* # the image leaves out manual pages and documentation
dpkg --install /dist/*_linux_amd64.deb >/dev/null
! command -v go node npm python3 bwrap >/dev/null
cp -r /src/examples /tmp && cd /tmp
`+job+`
echo; cat out/seattle.svg
test -f /usr/share/bash-completion/completions/execbroker
zcat /usr/share/man/man1/execbroker-run.1.gz | grep -q '^.TH'
test -z "$(dpkg --verify execbroker)"
dpkg --remove execbroker >/dev/null
test ! -e /usr/lib/execbroker -a -e /etc/execbroker/execbroker.yaml
`)
		if !strings.HasPrefix(got, blocks["output"]) || !strings.Contains(got, string(chart)) {
			t.Errorf("got\n%s\nwant the text of README.md and the chart", got)
		}
	})

	t.Run("rpm", func(t *testing.T) {
		got := container(t, dockertest.Systemd, `
rpm --install --nodeps --ignorearch /dist/*_linux_amd64.rpm
rpm --verify --nodeps execbroker
cp -r /src/examples /tmp && cd /tmp
`+job+`
echo; cat out/seattle.svg`)
		if !strings.HasPrefix(got, blocks["output"]) || !strings.Contains(got, string(chart)) {
			t.Errorf("got\n%s\nwant the text of README.md and the chart", got)
		}
	})

	t.Run("image", func(t *testing.T) {
		image := imageName + ":" + imageTag(version)
		in(t, dist, "docker", "load", "--quiet", "--input", "execbroker_"+version+"_linux_amd64.oci.tar")
		t.Cleanup(func() { exec.Command("docker", "image", "rm", "--force", image).Run() }) //nolint:errcheck,noctx // what is left is seen in the engine
		in(t, dist, "sh", "-c", strings.ReplaceAll(commandsOf(t, "Check an image")[0], "0.1.0", version))
		// A user whom the image does not know, without any right, who can write to memory only.
		args := []string{"run", "--rm", "--network", "none", "--read-only", "--user", "12345:12345", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
			"--tmpfs", "/tmp", "--tmpfs", "/var/cache/execbroker", "--volume", clone + ":/src:ro", "--workdir", "/src", image}
		words := strings.Fields(strings.Replace(job, "--out out", "--out /tmp/out", 1))
		if got := in(t, dist, "docker", append(args, words[1:]...)...); !strings.HasPrefix(got, blocks["output"]) {
			t.Errorf("got\n%s\nwant the text of README.md", got)
		}
		if got := strings.TrimSpace(in(t, dist, "docker", "image", "inspect", "--format", "{{.Config.User}}", image)); got != "65532:65532" {
			t.Errorf("got the user %s", got)
		}
	})

	t.Run("service", func(t *testing.T) { service(t, clone, dist) })

	t.Run("chart", func(t *testing.T) {
		pack := filepath.Join(dist, "execbroker-"+version+".tgz")
		for name, c := range map[string]struct{ values, image string }{
			"loaded":   {"", loadedName(t, filepath.Join(dist, "execbroker_"+version+"_linux_amd64.oci.tar"))},
			"registry": {"image: {repository: registry.example/execbroker}\n", "registry.example/execbroker:" + imageTag(version)},
		} {
			values := c.values + "apiKeys: {secret: keys}\nstore: {url: \"redis://redis.example:6379/0\"}\n"
			helmtest.Lint(t, pack, values)
			text, err := helmtest.Template(t, pack, values)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"image: \"" + c.image + "\"\n", "app.kubernetes.io/version: \"" + version + "\"\n", "helm.sh/chart: \"execbroker-" + version + "\"\n"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: want %q in\n%s", name, want, text)
				}
			}
		}
	})

	t.Run("again", func(t *testing.T) {
		_, second := made(t, clone, "linux/amd64")
		for _, suffix := range []string{".tar.gz", ".cdx.json", ".deb", ".rpm", ".oci.tar"} {
			name := "execbroker_" + version + "_linux_amd64" + suffix
			in(t, dist, "cmp", name, filepath.Join(second, name))
		}
		chart := "execbroker-" + version + ".tgz"
		in(t, dist, "cmp", chart, filepath.Join(second, chart))
	})
}

// loadedName is the name that an image has at a node that has loaded it.
func loadedName(t *testing.T, file string) string {
	t.Helper()
	var index oci.Index
	if err := json.Unmarshal([]byte(in(t, ".", "tar", "-xOf", file, oci.ImageIndexFile)), &index); err != nil {
		t.Fatal(err)
	}
	return index.Manifests[0].Annotations["io.containerd.image.name"]
}

// service starts the service of the Debian package under systemd, in a container that has one. Of
// the machine's control groups it gets the hierarchy of systemd alone: with all of them it would
// make directories at the machine, and leave it with that file system read-only.
func service(t *testing.T, clone, dist string) {
	id := strings.TrimSpace(in(t, clone, "docker", "run", "--detach", "--network", "none", "--env", "container=docker",
		"--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_PTRACE", "--cap-add", "SYS_NICE", "--cap-add", "IPC_LOCK", "--cap-add", "DAC_READ_SEARCH",
		"--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined", "--tmpfs", "/run:exec", "--tmpfs", "/run/lock", "--tmpfs", "/tmp",
		"--tmpfs", "/sys/fs/cgroup:mode=755", "--volume", "/sys/fs/cgroup/systemd:/sys/fs/cgroup/systemd:rw", "--volume", dist+":/dist:ro", dockertest.Systemd, "/lib/systemd/systemd"))
	t.Cleanup(func() { exec.Command("docker", "rm", "--force", "--volumes", id).Run() }) //nolint:errcheck,noctx // what is left is seen in the engine
	guide, err := os.ReadFile(filepath.Join(clone, "docs/guides/install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, key, found := strings.Cut(string(guide), "$ sed -i \"s|^EXECBROKER_API_KEYS=")
	if key, _, _ = strings.Cut(key, "\n"); !found {
		t.Fatal("install.md does not say how the service gets its key")
	}
	script := `
until systemctl is-system-running --wait >/dev/null 2>&1; do systemctl is-system-running | grep -q degraded && break; done
dpkg --install /dist/*_linux_amd64.deb >/dev/null
systemd-analyze verify --man=no /usr/lib/systemd/system/execbroker.service
systemd-analyze security --threshold=25 execbroker >/dev/null
! systemctl start execbroker 2>/dev/null
journalctl --unit execbroker | grep -q 'set EXECBROKER_API_KEYS in /etc/execbroker/execbroker.env'
sed -i "s|^EXECBROKER_API_KEYS=` + key + `
sed -i 's/^EXECBROKER_FLAGS=.*/EXECBROKER_FLAGS=--warm/' /etc/execbroker/execbroker.env
key=$(sed -n 's/^EXECBROKER_API_KEYS=//p' /etc/execbroker/execbroker.env)
systemctl reset-failed execbroker && systemctl start execbroker
until journalctl --unit execbroker | grep -q 'serving at'; do systemctl is-active --quiet execbroker || { journalctl --unit execbroker; exit 1; }; sleep 1; done
curl -sS -H "Authorization: Bearer $key" -d '{"code": "print(6*7)"}' http://127.0.0.1:3000/v1/run; echo
systemctl reload execbroker && systemctl is-active execbroker
echo "user $(stat -c %u /proc/$(systemctl show --property MainPID --value execbroker))"
pgrep bwrap >/dev/null 2>&1 || ls /proc/*/exe -l 2>/dev/null | grep -q bwrap && echo confined
systemctl stop execbroker; systemctl is-active execbroker || true
journalctl --unit execbroker | grep -cF "$key" || true`
	got := in(t, clone, "docker", "exec", id, "sh", "-ec", script)
	for _, want := range []string{`"stdout":"42\n"`, "\nactive\n", "\nconfined\n", "\ninactive\n0\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %q", got, want)
		}
	}
	if strings.Contains(got, "\nuser 0\n") {
		t.Errorf("the service runs as root:\n%s", got)
	}
}
