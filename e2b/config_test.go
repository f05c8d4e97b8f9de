package e2b

import (
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestInvalidConfig(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"key", `{"api_key": "e2b_0123"}`, "api_key: a configuration names a secret and does not contain it"},
		{"two-keys", `{"api_key": {"env": "A", "file": "/b"}}`, "api_key: want one of env and file, got both"},
		{"domain", `{"domain": "https://e2b.app"}`, "domain: "},
		{"http", `{"api_url": "http://api.example.org"}`, "api_url: http shows the key and the code to everybody on the way"},
		{"scheme", `{"sandbox_url": "ftp://example.org"}`, `sandbox_url: scheme "ftp": want https`},
		{"user-in-url", `{"api_url": "https://key@example.org"}`, "api_url: want a scheme, a host and a path only"},
		{"template", `{"template": "a b"}`, "template: "},
		{"template-name", `{"templates": {"x": "../y"}}`, "templates.x: "},
		{"language", `{"languages": ["pyton"]}`, `languages[0]: unknown language "pyton"; did you mean "python"?`},
		{"language-twice", `{"languages": ["python", "python"]}`, "languages[1]: given twice"},
		{"network", `{"networks": ["no"]}`, `networks[0]: unknown policy "no"`},
		{"kernel", `{"kernel": "code-interpeter"}`, `kernel: unknown kernel "code-interpeter"; did you mean "code-interpreter"?`},
		{"language-of-other-kernel", `{"languages": ["r"]}`, `languages[0]: unknown language "r"`},
		{"user", `{"user": "a:b"}`, "user: "},
		{"life", `{"max_life": "1ms"}`, "max_life: want a second or more"},
		{"timeout", `{"timeout": "-1s"}`, "timeout: "},
		{"packages-no-language", `{"packages": {"allow": {"javascript": ["ms"]}, "registry": "https://npm.example.org"}}`, "packages: there are some of javascript, which is not one of the languages"},
		{"packages-no-registry", `{"languages": ["javascript"], "packages": {"allow": {"javascript": ["ms"]}}}`, "packages.registry: is needed"},
		{"packages-name", `{"packages": {"allow": {"python": ["six", "-r x"]}}}`, "packages.allow.python[1]: "},
		{"packages-index", `{"packages": {"index_url": "http://example.org"}}`, "packages.index_url: http lets"},
		{"packages-size", `{"packages": {"size": "1GB"}}`, "packages.size: want a size"},
		{"packages-negative", `{"packages": {"size": -1}}`, "packages.size: negative"},
		{"packages-kernel", `{"kernel": "code-interpreter", "packages": {"allow": {"python": ["six"]}}}`, "packages: are those of the template with the kernel code-interpreter"},
		{"packages-user", `{"user": "user", "packages": {"allow": {"python": ["six"]}}}`, "packages: need the user root"},
		{"packages-internet", `{"networks": ["none"], "packages": {"allow": {"python": ["six"]}}}`, "packages: are fetched in sandboxes with internet"},
		{"packages-unknown", `{"packages": {"alow": {}}}`, `unknown field "alow"`},
		{"unknown", `{"templat": "x"}`, `unknown field "templat"; did you mean "template"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Factory().Check([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "e2b_0123") {
				t.Errorf("the key is in %v", err)
			}
		})
	}
}

func TestConfigTakes(t *testing.T) {
	for _, text := range []string{
		``, `{}`,
		`{"api_key": {"file": "/run/secrets/e2b"}, "domain": "sandboxes.internal:8443", "api_url": "https://api.internal/e2b/", "user": "user", "max_life": "24h"}`,
		`{"api_url": "http://127.0.0.1:3000", "sandbox_url": "http://localhost:3000"}`,
		`{"kernel": "code-interpreter", "languages": ["python", "r", "java", "bash", "typescript"]}`, `{"kernel": "runner"}`,
		`{"languages": ["python", "javascript"], "packages": {"allow": {"python": ["six", "*"], "javascript": ["@a/b@^2"]}, "registry": "https://npm.example.org", "index_url": "https://example.org/simple", "size": "1GiB"}}`,
		`{"networks": ["none"], "packages": {"allow": {"python": ["six"]}, "wheels": "/srv/wheels"}}`,
		`{"networks": ["full"], "packages": {"allow": {"python": ["six"]}, "wheels": "/srv/wheels"}}`,
		`{"api_url": "http://10.0.0.1:3000", "insecure": true, "public_traffic": true}`,
	} {
		if err := Factory().Check([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What the zero configuration means is in the documentation.
func TestConfigDefaults(t *testing.T) {
	var c Config
	if got := c.apiURL(); got != "https://api.e2b.app" {
		t.Errorf("got the address %s", got)
	}
	if c.template("") != "base" || c.user() != "root" || c.maxLife() != time.Hour || c.key() != (driver.Secret{Env: "E2B_API_KEY"}) {
		t.Errorf("got %q, %q, %v, %v", c.template(""), c.user(), c.maxLife(), c.key())
	}
	x, err := Open(t.Context(), driver.Env{Owner: "test"}, c)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for _, f := range []executor.Feature{executor.FeatureNetworkNone, executor.FeatureNetworkAllowlist, executor.FeatureNetworkFull} {
		if !x.Info().Capabilities.Has(f) {
			t.Errorf("%s is not declared", f)
		}
	}
}

// Invalid packages are told all at once.
func TestInvalidPackages(t *testing.T) {
	err := Factory().Check([]byte(`{"user": "user", "packages": {"allow": {"python": ["./x"], "cobol": ["x"]}, "wheels": "here", "size": -1}}`))
	if err == nil {
		t.Fatal("no mistake was found")
	}
	for _, want := range []string{"packages.allow.cobol: ", "packages.allow.python[0]: ", "packages.wheels: not an absolute path", "packages.size: negative", "packages: need the user root"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
