package modal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// The token is in nothing that a session gives out: not in the sandbox, the handle, errors, what is
// logged, or tags.
func TestTokenStaysHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log bytes.Buffer
	cfg := w.config()
	plain(&cfg)
	var box executor.Executor
	err := dialling(w.URL(), func() (err error) {
		box, err = Open(t.Context(), driver.Env{Owner: w.owner, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, box, executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}})
	sb := sandboxOf(t, s)
	r, err := s.Run(t.Context(), executor.Request{Code: `import glob
for name in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try: print(name, open(name, "rb").read())
    except OSError as e: print(name, e.strerror)`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, jerr := json.Marshal(s.Info())
	of, ferr := w.backend(t).sdk.Sandboxes.FromID(t.Context(), sb, nil)
	tags, terr := of.GetTags(t.Context(), nil)
	lost := w.Preempt(t.Context(), sb)
	_, rerr := s.Run(t.Context(), executor.Request{Code: "1"}, nil)
	if err := errors.Join(jerr, ferr, terr, lost, s.Close(), box.Close()); err != nil {
		t.Fatal(err)
	}
	id, secret := w.Token()
	for what, text := range map[string]string{
		"info": string(info), "guest": r.Stdout.String(), "log": log.String(), "tags": fmt.Sprint(tags), "error": fmt.Sprintf("%v %+v", rerr, rerr),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, id) {
			t.Errorf("%s has the token: %s", what, text)
		}
	}
}
