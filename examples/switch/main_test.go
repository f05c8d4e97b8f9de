package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/modal/modaltest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

func golden(t *testing.T) string {
	t.Helper()
	want, err := os.ReadFile("testdata/transcript.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(want)
}

// parse reads one of the files of this directory.
func parse(t *testing.T, file string) backends.Config {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := backends.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// check compares the output, byte by byte, with the transcript that all backends give.
func check(t *testing.T, cfg backends.Config) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), &out, cfg); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), golden(t); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPyodide(t *testing.T) { check(t, parse(t, "pyodide.yaml")) }

func TestDocker(t *testing.T) {
	cfg := parse(t, "docker.yaml")
	use(t, cfg, dockertest.Python)
	check(t, cfg)
}

func TestE2B(t *testing.T) { checkE2B(t, "e2b.yaml") }

func TestE2BCodeInterpreter(t *testing.T) { checkE2B(t, "e2b-code-interpreter.yaml") }

// checkE2B runs against a stand-in for the service, which uses containers of the same image.
func checkE2B(t *testing.T, file string) {
	t.Helper()
	server, err := e2btest.Start(t.Context(), e2btest.Options{Owner: "switch"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("E2B_API_KEY", e2btest.Key)
	cfg := parse(t, file)
	for _, key := range []string{"api_url", "sandbox_url"} {
		cfg.Backends["code"].Settings[key] = json.RawMessage(strconv.Quote(server.URL))
	}
	check(t, cfg)
}

// TestFly runs against the emulator, with the same file except for the addresses of Fly.
func TestFly(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	const image = "registry.fly.io/my-sandboxes:sandbox"
	fly, err := flytest.Start(t.Context(), flytest.Config{
		Engine: host, Apps: []flytest.App{{Name: "my-sandboxes"}}, Images: map[string]string{image: dockertest.Python}, Tokens: []string{"a token"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fly.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("FLY_API_TOKEN", "a token")
	cfg := parse(t, "fly.yaml")
	settings := cfg.Backends["code"].Settings
	settings["api"], settings["proxy"] = json.RawMessage(strconv.Quote(fly.API)), json.RawMessage(strconv.Quote(fly.Edge))
	check(t, cfg)
}

// TestModal runs against the stand-in, with the same file: the SDK takes the address of Modal from
// its environment.
func TestModal(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	modal, err := modaltest.New(t.Context(), modaltest.Config{
		Engine: host, Images: map[string]string{"registry.example/my-sandboxes:sandbox": dockertest.Python},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := modal.Close(); err != nil {
			t.Error(err)
		}
	})
	id, secret := modal.Token()
	for name, value := range map[string]string{
		"MODAL_SERVER_URL": modal.URL(), "MODAL_TOKEN_ID": id, "MODAL_TOKEN_SECRET": secret, "MODAL_CONFIG_PATH": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	check(t, parse(t, "modal.yaml"))
}

// use changes the configuration to the engine and an image of the tests.
func use(t *testing.T, cfg backends.Config, image string) {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"host": host, "image": image, "pull": "never"} {
		cfg.Backends["code"].Settings[key] = json.RawMessage(strconv.Quote(value))
	}
}
