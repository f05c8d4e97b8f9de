package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/moby/client"
)

// endpoint is where the engine is and what said so.
type endpoint struct {
	host string
	tls  *TLS
	from string // for people: "DOCKER_HOST", "context x"
}

// client makes a client of the endpoint. It does no I/O but reading certificates.
func (e endpoint) client() (*client.Client, error) {
	opts := []client.Opt{client.WithHost(e.host), client.WithUserAgent("execbroker")}
	if e.tls != nil {
		opts = append(opts, client.WithTLSClientConfig(e.tls.CA, e.tls.Cert, e.tls.Key))
	}
	return client.New(opts...)
}

// environment is what finding an engine reads, so that tests can give another.
type environment struct {
	getenv func(string) string
	exists func(path string) bool
	home   string
}

func processEnvironment() environment {
	home, _ := os.UserHomeDir() // without one there are no contexts and no rootless socket in it
	return environment{
		getenv: os.Getenv,
		exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
		home:   home,
	}
}

// endpoint finds the engine as the docker command does: what is said most explicitly wins.
func (c *Config) endpoint(env environment) (endpoint, error) {
	switch {
	case c.Host != "":
		return endpoint{c.Host, c.TLS, "host"}, nil
	case c.Context != "":
		return env.context(c.Context)
	}
	if h := env.getenv(client.EnvOverrideHost); h != "" {
		return env.fromVariable(h)
	}
	if name := env.getenv("DOCKER_CONTEXT"); name != "" {
		return env.context(name)
	}
	current, err := env.currentContext()
	if err != nil {
		return endpoint{}, err
	}
	if current != "" {
		return env.context(current)
	}
	// The docker command stops at the socket of the system; rootless engines tell their users to
	// set DOCKER_HOST, and many forget.
	sockets := []string{"/var/run/docker.sock"}
	if dir := env.getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if env.home != "" {
		sockets = append(sockets, filepath.Join(env.home, ".docker", "run", "docker.sock"), filepath.Join(env.home, ".docker", "desktop", "docker.sock"))
	}
	for _, s := range sockets {
		if env.exists(s) {
			return endpoint{"unix://" + s, nil, "default socket"}, nil
		}
	}
	return endpoint{client.DefaultDockerHost, nil, "default socket"}, nil
}

// fromVariable reads the variables that go with DOCKER_HOST.
func (env environment) fromVariable(host string) (endpoint, error) {
	e := endpoint{host: host, from: client.EnvOverrideHost}
	if env.getenv(client.EnvTLSVerify) != "" {
		dir := env.getenv(client.EnvOverrideCertPath)
		if dir == "" {
			dir = env.configDir()
		}
		e.tls = tlsIn(dir)
	} else if env.getenv("DOCKER_TLS") != "" {
		return e, errors.New("DOCKER_TLS without DOCKER_TLS_VERIFY would take any engine for the right one; set DOCKER_TLS_VERIFY=1")
	}
	if err := checkHost(host, e.tls != nil); err != nil {
		return e, fmt.Errorf("%s: %w", client.EnvOverrideHost, err)
	}
	return e, nil
}

// configDir is where the docker command keeps its settings.
func (env environment) configDir() string {
	if d := env.getenv("DOCKER_CONFIG"); d != "" {
		return d
	}
	return filepath.Join(env.home, ".docker")
}

// currentContext returns what `docker context use` has chosen, or "" if nothing has.
func (env environment) currentContext() (string, error) {
	name := filepath.Join(env.configDir(), "config.json")
	var cfg struct{ CurrentContext string }
	if err := readJSON(name, &cfg); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if cfg.CurrentContext == "default" {
		return "", nil
	}
	return cfg.CurrentContext, nil
}

// context reads a context of the docker command. They are kept by the hash of their names.
func (env environment) context(name string) (endpoint, error) {
	e := endpoint{from: "context " + name}
	if name == "default" {
		return endpoint{client.DefaultDockerHost, nil, e.from}, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	dir := filepath.Join(env.configDir(), "contexts")
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	err := readJSON(filepath.Join(dir, "meta", id, "meta.json"), &meta)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return e, fmt.Errorf("%s: there is none of that name; docker context ls shows them", e.from)
	case err != nil:
		return e, fmt.Errorf("%s: %w", e.from, err)
	case meta.Endpoints["docker"].SkipTLSVerify:
		return e, fmt.Errorf("%s: its endpoint skips the verification of the engine, which is not supported", e.from)
	}
	if e.host = meta.Endpoints["docker"].Host; e.host == "" {
		return e, fmt.Errorf("%s: it has no endpoint for docker", e.from)
	}
	if certs := filepath.Join(dir, "tls", id, "docker"); env.exists(certs) {
		e.tls = tlsIn(certs)
		if !env.exists(e.tls.CA) {
			e.tls.CA = ""
		}
	}
	if err := checkHost(e.host, e.tls != nil); err != nil {
		return e, fmt.Errorf("%s: %w", e.from, err)
	}
	return e, nil
}

// tlsIn names the files of a certificate as the docker command does.
func tlsIn(dir string) *TLS {
	return &TLS{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// readJSON reads a file that another program wrote and that may have more in it.
func readJSON(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
