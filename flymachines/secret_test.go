package flymachines

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/runner"
)

// TestKeyOfSecrets attaches to a session from backends that have the same key, another one, and
// none: what the API tells of a Machine does not suffice.
func TestKeyOfSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keyed := func(c *Config) { c.Key = driver.Secret{File: file} }
	write(strings.Repeat("k", minKey))
	creator := w.open(t, keyed)
	s := create(t, creator, executor.Spec{})
	mustRun(t, s, "x = 6*7\nx", "42")

	other := w.open(t, keyed)
	again, err := other.Attach(t.Context(), s.Info().Handle)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, again, "x", "42")

	// As one whose token was renewed, or that can only read.
	if got, err := w.open(t).Attach(t.Context(), s.Info().Handle); !errors.Is(err, executor.ErrAuth) {
		t.Errorf("without the key: got %v, %v, want that it is not authorized", got, err)
	}
	write(strings.Repeat("l", minKey))
	if got, err := other.Attach(t.Context(), s.Info().Handle); !errors.Is(err, executor.ErrAuth) {
		t.Errorf("with another key: got %v, %v, want that it is not authorized", got, err)
	}
	write("short")
	if got, err := creator.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrAuth) || !strings.Contains(fmt.Sprint(err), "fewer than") {
		t.Errorf("with a short key: got %v, %v, want that it is refused", got, err)
	}
	mustRun(t, s, "x", "42") // who holds the session has its secret already
}

// TestRunnerChosen has the runner come from the image where files have no room for it.
func TestRunnerChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// A file of the user where images have it stands for such an image, and leaves no room for
	// another one.
	program := base64.StdEncoding.EncodeToString(runner.GuestProgram())
	baked := fmt.Sprintf(`{"guest_path":%q,"raw_value":%q}`, RunnerPath, program)
	if len(baked) <= room() {
		baked += fmt.Sprintf(`,{"guest_path":"/data","raw_value":%q}`, strings.Repeat("QUFB", (room()-len(program))/4+1))
	}
	for _, c := range []struct {
		name    string
		files   string
		refuse  bool
		runner  RunnerIn
		want    error
		missing string
	}{
		{"no-room", baked, false, "", nil, ""},
		{"refused-by-fly-and-not-in-the-image", "", true, "", executor.ErrUnsupported, "runner"},
		{"refused-by-fly-and-chosen", "", true, RunnerFiles, executor.ErrInvalid, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.refuse {
				t.Cleanup(w.Switch(flytest.Answer(http.StatusRequestEntityTooLarge, `{"error":"too large"}`, flytest.OpCreate).Times(1)))
			}
			box := w.open(t, func(cfg *Config) {
				cfg.Machine, cfg.Runner = json.RawMessage(`{"files":[`+c.files+`]}`), c.runner
			})
			s, err := box.Create(t.Context(), executor.Spec{})
			var e *executor.Error
			if !errors.Is(err, c.want) || c.missing != "" && (!errors.As(err, &e) || !slices.Contains(e.Missing, c.missing)) {
				t.Fatalf("got %v, want %v and that %q is missing", err, c.want, c.missing)
			}
			if err != nil {
				return
			}
			defer s.Close()
			mustRun(t, s, "6*7", "42")
			mustRun(t, create(t, box, executor.Spec{}), "6*7", "42") // the next one goes the same way at once
		})
	}
}
