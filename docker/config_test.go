package docker

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		json string
		want []string // beginnings of the lines of the error
	}{
		"zero":           {`{}`, nil},
		"full":           {`{"host":"unix:///run/docker.sock","image":"docker.io/library/python:3.13","pull":"always","templates":{"a":"localhost/a:1","b":{"image":"example.org:5000/b","limits":{"memory":"1GiB"}}},"languages":["javascript","python"],"runtime":"runsc","network":"sandboxes","limits":{"cpus":0.5,"disk":1024},"max_limits":{"processes":10},"timeout":"20s"}`, nil},
		"tls":            {`{"host":"tcp://example.org:2376","tls":{"cert":"c","key":"k"}}`, nil},
		"tunnel":         {`{"host":"tcp://127.0.0.1:2375"}`, nil},
		"image-id":       {`{"image":"sha256:` + strings.Repeat("a", 64) + `"}`, nil},
		"image-space":    {`{"image":"example.org/a b"}`, []string{`image: "example.org/a b" has characters`}},
		"image-accent":   {`{"image":"example.org/é"}`, []string{`image: "example.org/é" has characters`}},
		"short-never":    {`{"image":"mine","pull":"never"}`, nil},
		"short":          {`{"image":"mine/python:3"}`, []string{`image: "mine/python:3" has no registry; write "docker.io/mine/python:3"`}},
		"short-official": {`{"image":"python"}`, []string{`image: "python" has no registry; write "docker.io/library/python"`}},
		"short-template": {`{"templates":{"a":"python"}}`, []string{`templates.a.image: "python" has no registry`}},
		"many":           {`{"pull":"sometimes","languages":["python","python","ruby"],"limits":{"cpus":-1},"network":"host"}`, []string{`pull: unknown policy "sometimes"`, `languages[1]: given twice`, `languages[2]: unknown language "ruby"`, `limits: negative`, `network: host would put`}},
		"unknown":        {`{"imgae":"x"}`, []string{`unknown field "imgae"; did you mean "image"?`}},
		"unknown-deep":   {`{"templates":{"a":{"img":"x"}}}`, []string{`templates.a: unknown field "img"; did you mean "image"?`, `templates.a.image: is empty`}},
		"host-context":   {`{"host":"unix:///x","context":"y"}`, []string{`context: excludes host`}},
		"no-tls":         {`{"host":"tcp://example.org:2375"}`, []string{`host: tcp without tls`}},
		"ssh":            {`{"host":"ssh://example.org"}`, []string{`host: ssh is not supported`}},
		"relative":       {`{"host":"unix://docker.sock"}`, []string{`host: the path of the socket is not absolute`}},
		"no-scheme":      {`{"host":"docker.sock"}`, []string{`host: "docker.sock" is not an address`}},
		"tls-alone":      {`{"tls":{"cert":"c","key":"k"}}`, []string{`tls: needs a tcp host`}},
		"tls-anybody":    {`{"host":"tcp://example.org:1","tls":{"ca":"c"}}`, []string{`tls: needs cert and key`}},
		"size":           {`{"limits":{"memory":"1GB"}}`, []string{`limits.memory: want a size`}},
		"size-large":     {`{"limits":{"memory":"99999999TiB"}}`, []string{`limits.memory: want a size`}},
		"packages":       {`{"packages":{"allow":{"python":["numpy","pandas>=2,<3","uvicorn[standard]","*"]},"requirements":"/etc/r.txt","index_url":"https://example.org/simple","find_links":["http://example.org/x"],"insecure":true,"wheels":"/srv/wheels","network":"fetching","size":"1GiB"},"templates":{"a":{"image":"example.org/a","packages":{"python":["scipy"]}}}}`, nil},
		"packages-bad": {
			`{"packages":{"allow":{"python":["x y","-r x"],"javascript":["ms","https://example.org/x.tgz","a@latest"],"cobol":["x"]},"index_url":"http://example.org","find_links":["https://me:pw@example.org/"],"wheels":"here","size":-1,"network":"host"},"templates":{"a":{"image":"example.org/a","packages":{"python":["./x"],"javascript":["ms","user/repo"],"cobol":["x"]}}}}`,
			[]string{
				`templates.a.packages.cobol: packages can be`, `templates.a.packages.javascript[1]: `, `templates.a.packages.python[0]: `,
				`packages: there are some of javascript`, `packages.allow.cobol: packages can be`, `packages.allow.javascript[1]: `, `packages.allow.javascript[2]: `,
				`packages.allow.python[0]: `, `packages.allow.python[1]: `, `packages.index_url: http lets`, `packages.find_links[0]: a configuration contains no password`,
				`packages.wheels: not an absolute path`, `packages.size: negative`, `packages.network: host would`,
			},
		},
		"gvisor": {
			`{"runtime":"runsc","limits":{"processes":10},"templates":{"a":{"image":"example.org/a","limits":{"processes":5}}}}`,
			[]string{`templates.a.limits: processes: gVisor does not`, `limits: processes: gVisor does not`},
		},
		"other-container": {`{"network":"container:db"}`, []string{`network: joining the network of a container`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Factory().Check([]byte(c.json))
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// hash is the directory of a context: the docker command's choice.
func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func encode(text string) string { return base64.URLEncoding.EncodeToString([]byte(text)) }

// write makes a file below dir.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEndpoint(t *testing.T) {
	dir := t.TempDir()
	context := func(name, meta string) {
		write(t, dir, "contexts/meta/"+hash(name)+"/meta.json", meta)
	}
	context("rootless", `{"Name":"rootless","Endpoints":{"docker":{"Host":"unix:///run/user/1000/docker.sock"}}}`)
	context("remote", `{"Endpoints":{"docker":{"Host":"tcp://example.org:2376"}}}`)
	write(t, dir, "contexts/tls/"+hash("remote")+"/docker/cert.pem", "")
	context("open", `{"Endpoints":{"docker":{"Host":"tcp://example.org:2375"}}}`)
	context("skips", `{"Endpoints":{"docker":{"Host":"tcp://example.org:2376","SkipTLSVerify":true}}}`)
	context("ssh", `{"Endpoints":{"docker":{"Host":"ssh://example.org"}}}`)
	context("kubernetes", `{"Endpoints":{"kubernetes":{"Host":"https://example.org"}}}`)
	context("broken", `{`)
	certs := filepath.Join(dir, "contexts", "tls", hash("remote"), "docker")
	for name, c := range map[string]struct {
		cfg     Config
		vars    map[string]string
		current string // context of config.json
		sockets []string
		host    string
		tls     string // directory
		err     string
	}{
		"system":             {sockets: []string{"/var/run/docker.sock", "/run/user/1/docker.sock"}, vars: map[string]string{"XDG_RUNTIME_DIR": "/run/user/1"}, host: "unix:///var/run/docker.sock"},
		"rootless":           {sockets: []string{"/run/user/1/docker.sock"}, vars: map[string]string{"XDG_RUNTIME_DIR": "/run/user/1"}, host: "unix:///run/user/1/docker.sock"},
		"desktop":            {sockets: []string{"/home/u/.docker/run/docker.sock"}, host: "unix:///home/u/.docker/run/docker.sock"},
		"nothing":            {host: "unix:///var/run/docker.sock"},
		"host-wins":          {cfg: Config{Host: "unix:///a"}, vars: map[string]string{"DOCKER_HOST": "unix:///b"}, host: "unix:///a"},
		"variable":           {vars: map[string]string{"DOCKER_HOST": "unix:///b", "DOCKER_CONTEXT": "rootless"}, host: "unix:///b"},
		"variable-tls":       {vars: map[string]string{"DOCKER_HOST": "tcp://h:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}, host: "tcp://h:1", tls: "/certs"},
		"variable-tls-dir":   {vars: map[string]string{"DOCKER_HOST": "tcp://h:1", "DOCKER_TLS_VERIFY": "1"}, host: "tcp://h:1", tls: dir},
		"variable-open":      {vars: map[string]string{"DOCKER_HOST": "tcp://h:1"}, err: "DOCKER_HOST: tcp without tls"},
		"variable-no-verify": {vars: map[string]string{"DOCKER_HOST": "tcp://h:1", "DOCKER_TLS": "1"}, err: "DOCKER_TLS without DOCKER_TLS_VERIFY"},
		"variable-ssh":       {vars: map[string]string{"DOCKER_HOST": "ssh://h"}, err: "DOCKER_HOST: ssh is not supported"},
		"context-variable":   {vars: map[string]string{"DOCKER_CONTEXT": "rootless"}, current: "remote", host: "unix:///run/user/1000/docker.sock"},
		"context-current":    {current: "rootless", sockets: []string{"/var/run/docker.sock"}, host: "unix:///run/user/1000/docker.sock"},
		"context-default":    {current: "default", host: "unix:///var/run/docker.sock"},
		"context-named":      {cfg: Config{Context: "remote"}, vars: map[string]string{"DOCKER_HOST": "unix:///b"}, host: "tcp://example.org:2376", tls: certs},
		"context-missing":    {cfg: Config{Context: "nix"}, err: "context nix: there is none of that name"},
		"context-open":       {cfg: Config{Context: "open"}, err: "context open: tcp without tls"},
		"context-skips":      {cfg: Config{Context: "skips"}, err: "context skips: its endpoint skips the verification"},
		"context-ssh":        {cfg: Config{Context: "ssh"}, err: "context ssh: ssh is not supported"},
		"context-other":      {cfg: Config{Context: "kubernetes"}, err: "context kubernetes: it has no endpoint for docker"},
		"context-broken":     {cfg: Config{Context: "broken"}, err: "context broken: "},
		"context-escape":     {cfg: Config{Context: "../../x"}, err: "context ../../x: there is none of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.current != "" {
				write(t, dir, "config.json", `{"currentContext":"`+c.current+`"}`)
			} else {
				write(t, dir, "config.json", `{}`)
			}
			env := environment{
				getenv: func(k string) string {
					if k == "DOCKER_CONFIG" {
						return dir
					}
					return c.vars[k]
				},
				exists: func(p string) bool {
					_, err := os.Stat(p)
					return slices.Contains(c.sockets, p) || strings.HasPrefix(p, dir) && err == nil
				},
				home: "/home/u",
			}
			e, err := c.cfg.endpoint(env)
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || e.host != c.host {
				t.Errorf("got %q, %v, want %q", e.host, err, c.host)
			}
			switch {
			case (e.tls != nil) != (c.tls != ""):
				t.Errorf("got tls %+v, want that in %q", e.tls, c.tls)
			case e.tls != nil && filepath.Dir(e.tls.Key) != c.tls:
				t.Errorf("got key %s, want it in %s", e.tls.Key, c.tls)
			}
		})
	}
}

func TestRegistryAuth(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "config.json", `{"credsStore":"desktop","auths":{"example.org":{"auth":"dTpwOnE="},"https://index.docker.io/v1/":{"auth":"aDpw"},"helper.example":{},"bad.example":{"auth":"%"}}}`)
	for image, want := range map[string]string{
		"example.org/a/b:1":      `{"username":"u","password":"p:q","serveraddress":"example.org"}`,
		"docker.io/library/a":    `{"username":"h","password":"p","serveraddress":"https://index.docker.io/v1/"}`,
		"helper.example/a":       "",
		"other.example/a":        "",
		"example.org.evil/a/b:1": "",
	} {
		got, err := registryAuth(dir, image)
		if err != nil || got != encode(want) {
			t.Errorf("%s: got %q, %v, want %s", image, got, err, want)
		}
	}
	if _, err := registryAuth(dir, "bad.example/a"); err == nil || strings.Contains(err.Error(), "%") {
		t.Errorf("got %v, want an error without the credentials", err)
	}
	if got, err := registryAuth(t.TempDir(), "example.org/a"); got != "" || err != nil {
		t.Errorf("no file: got %q, %v", got, err)
	}
}

func TestDeclarations(t *testing.T) {
	for name, c := range map[string]struct {
		cfg       Config
		isolation executor.Isolation
		languages []executor.Language
	}{
		"default": {Config{}, executor.IsolationContainer, []executor.Language{executor.Python}},
		"both":    {Config{Languages: []executor.Language{executor.JavaScript, executor.Python}}, executor.IsolationContainer, []executor.Language{executor.JavaScript, executor.Python}},
		"gvisor":  {Config{Runtime: "runsc-kvm"}, executor.IsolationGVisor, []executor.Language{executor.Python}},
		"shim":    {Config{Runtime: "io.containerd.kata.v2"}, executor.IsolationMicroVM, []executor.Language{executor.Python}},
		"unknown": {Config{Runtime: "sysbox-runc"}, executor.IsolationContainer, []executor.Language{executor.Python}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Host = "unix:///nowhere.sock" // no I/O: nobody needs to be there
			x, err := Open(t.Context(), driver.Env{Owner: "test"}, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			caps := x.Info().Capabilities
			if caps.Isolation != c.isolation {
				t.Errorf("got isolation %s, want %s", caps.Isolation, c.isolation)
			}
			var got []executor.Language
			for _, r := range caps.Languages {
				got = append(got, r.Language)
			}
			if !slices.Equal(got, c.languages) {
				t.Errorf("got %v, want %v", got, c.languages)
			}
			for _, f := range runner.GVisorLacks() {
				if got, want := slices.Contains(caps.Features, f), c.isolation != executor.IsolationGVisor; got != want {
					t.Errorf("%s: got %v", f, got)
				}
			}
		})
	}
}
