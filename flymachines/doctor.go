package flymachines

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor/driver"
)

// Doctor examines what the backend needs: the token, the app, what else is in it. It changes nothing, so it starts no Machine.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	if _, err := cfg.Token.Value(); err != nil {
		return []driver.Check{{Name: "token", Detail: err.Error(), Fix: "fly tokens create deploy --app " + cfg.App + ", and put it where token says"}}
	}
	b, err := newDriver(ctx, env, cfg)
	if err != nil {
		return []driver.Check{{Name: "client", Detail: err.Error(), Fix: "correct the configuration of this backend"}}
	}
	defer b.Close()
	at := cmp.Or(cfg.API, PublicAPI)
	var ms []*fly.Machine
	err = b.api.repeat(ctx, actionList, cfg.App, func(ctx context.Context) error {
		ms, err = b.api.flaps.List(ctx, cfg.App, "")
		return err
	})
	if err != nil {
		c := driver.Check{Name: "app " + cfg.App, Detail: err.Error(), Fix: "make sure that " + at + " can be reached from here"}
		var e *APIError
		if errors.As(err, &e) {
			switch e.class {
			case classAuth:
				c.Fix = "the token is not for this app, or has expired: fly tokens create deploy --app " + cfg.App
			case classMissing:
				c.Fix = "fly apps create " + cfg.App + " --network " + cfg.App
			}
		}
		return []driver.Check{c}
	}
	checks := []driver.Check{{Name: "app " + cfg.App, OK: true, Detail: fmt.Sprintf("%d Machines, at %s", len(ms), at)}}
	others := 0
	for _, m := range ms {
		if _, err := sessionInfo(m); err != nil && m.GetConfig() != nil {
			others++
		}
	}
	alone := driver.Check{Name: "nothing else in the app", OK: others == 0, Detail: "only sessions"}
	if others > 0 {
		alone.Detail = fmt.Sprintf("%d Machines are no sessions: code with a network reaches them", others)
		alone.Fix = "use an app for sandboxes alone, with a network of its own"
	}
	way := driver.Check{Name: "way to Machines", OK: true, Detail: "by their private addresses: works in the same private network only"}
	if cfg.Proxy != "" {
		way.Detail = "through " + cfg.Proxy
	} else if cfg.Dial != nil {
		way.Detail = "by a dialer of this program"
	}
	return append(append(checks, alone, way), cfg.sources().Examine()...)
}
