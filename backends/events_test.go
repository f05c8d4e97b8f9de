package backends_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestLog: what changes the way of sessions is in the log, which is also what OpenTelemetry gets.
func TestLog(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		var out bytes.Buffer
		env := driver.Env{Owner: "me", Log: slog.New(slog.NewTextHandler(&out, nil))}
		cfg := parse(w.T, "{backends: {x: {type: fake, on: a, broker: {breaker: {failures: 1, open: 1s}}}}}")
		b, err := backends.Open(w.Context(), env, w.reg, cfg)
		if err != nil {
			w.Fatal(err)
		}
		w.at["a"].Fail(fake.OpCreate, 1, unavailable)
		if _, err := b.Create(w.Context(), executor.Spec{}); err == nil {
			w.Fatal("want an error")
		}
		time.Sleep(2 * time.Second)
		l, err := b.Manager().Acquire(w.Context(), "chat", executor.Spec{})
		if err != nil {
			w.Fatal(err)
		}
		if err := l.Release(); err != nil {
			w.Error(err)
		}
		if err := b.Manager().Abandon(w.Context(), "chat"); err != nil {
			w.Error(err)
		}
		if err := b.Reload(w.Context(), parse(w.T, "{backends: {x: {type: fake, on: a}, y: {type: fake, on: b}}}")); err != nil {
			w.Error(err)
		}
		w.close(b)
		rest := out.String()
		for _, want := range []string{
			`level=WARN msg="the breaker is open, because the backend does not answer" backend=x next_try=1s`,
			`level=INFO msg="the breaker is closed, because the backend answers" backend=x`,
			`level=WARN msg="a session is abandoned" key=chat backend=x session=`,
			`level=INFO msg="the configuration has changed" opened=1 closed=0`,
		} {
			_, after, found := strings.Cut(rest, want)
			if !found {
				w.Fatalf("want %s in\n%s", want, out.String())
			}
			rest = after
		}
	})
}
