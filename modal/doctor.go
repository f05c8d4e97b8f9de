package modal

import (
	"context"
	"errors"
	"fmt"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Doctor examines what the backend needs: the token, the app, and what else is in it. It makes
// nothing: neither the app, nor an image, nor a Sandbox.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	b, err := newBackend(env, cfg)
	if err != nil {
		return []driver.Check{{Name: "configuration", Detail: err.Error(), Fix: "correct the configuration of this backend, or the environment of the SDK"}}
	}
	defer b.Close()
	c := driver.Check{Name: "app " + cfg.App}
	app, err := b.theApp(ctx, false)
	switch {
	case errors.Is(err, executor.ErrNotFound):
		c.OK, c.Detail = true, "it is not there: the first session makes it"
		return append([]driver.Check{c}, b.examineRest()...)
	case err != nil:
		c.Detail, c.Fix = err.Error(), "make sure that Modal can be reached from here"
		if errors.Is(err, executor.ErrAuth) {
			c.Fix = "modal token new makes a token; put it where token_id and token_secret say"
		}
		return []driver.Check{c}
	}
	ours, all := 0, 0
	for x, err := range b.living(ctx, app, nil) {
		if err != nil {
			c.Detail, c.Fix = err.Error(), "make sure that the token may list the Sandboxes of the app"
			return []driver.Check{c}
		}
		all++
		if _, err := sessionInfo(x.id, x.tags); err == nil {
			ours++
		}
	}
	c.OK, c.Detail = true, fmt.Sprintf("%d Sandboxes", all)
	alone := driver.Check{Name: "nothing else in the app", OK: ours == all, Detail: "only sessions"}
	if !alone.OK {
		alone.Detail, alone.Fix = fmt.Sprintf("%d Sandboxes are no sessions", all-ours), "use an app for sandboxes alone: who looks at it should see nothing else"
	}
	return append([]driver.Check{c, alone}, b.examineRest()...)
}

// examineRest says what cannot be asked for.
func (b *backend) examineRest() []driver.Check {
	isolation := driver.Check{Name: "isolation", OK: true, Detail: string(b.cfg.isolation())}
	image := driver.Check{Name: "image", OK: true, Detail: b.cfg.image("") + "; Modal builds it when a session first uses it"}
	if imageID.MatchString(b.cfg.image("")) {
		image.Detail = b.cfg.image("")
	}
	return append([]driver.Check{isolation, image}, b.cfg.sources().Examine()...)
}
