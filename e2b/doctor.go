package e2b

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Doctor examines what the backend needs: the key, the service, the templates. It creates nothing, so it costs nothing.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	b, err := newBackend(env, cfg)
	if err != nil {
		return []driver.Check{{Name: "service", Detail: err.Error(), Fix: "correct the configuration of this backend"}}
	}
	defer b.Close()
	key := driver.Check{Name: "key", OK: true, Detail: cfg.key().String()}
	if _, err := cfg.key().Value(); err != nil {
		key.OK, key.Detail, key.Fix = false, err.Error(), "put a key of the service there, or name another place with api_key"
		return []driver.Check{key}
	}
	service := driver.Check{Name: "service", OK: true, Detail: cfg.apiURL()}
	list, _, err := b.service.page(ctx, map[string]string{driver.LabelOwner: env.Owner}, "")
	if err != nil {
		err = b.service.fail(ctx, cfg.apiURL(), err)
		service.OK, service.Detail, service.Fix = false, err.Error(), "correct domain or api_url, or wait until the service answers"
		if errors.Is(err, executor.ErrAuth) {
			service.Fix = "take a key that the service knows"
		}
		return []driver.Check{key, service}
	}
	service.Detail = fmt.Sprintf("%s: %d sandboxes of this owner", service.Detail, len(list))
	checks := append([]driver.Check{key, service}, cfg.sources().Examine()...)
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(cfg.Templates))...) {
		c := driver.Check{Name: "template", OK: true, Detail: cfg.template(name)}
		if name != "" {
			c.Name = "template " + name
		}
		alias := cfg.template(name)
		_, err := b.service.repeat(ctx, "", func(ctx context.Context) (*http.Response, error) { return b.service.api.GetTemplateAlias(ctx, alias) }, nil)
		var said *ServiceError
		switch {
		case errors.As(err, &said) && said.Status == http.StatusNotFound:
			// IDs of templates are no aliases, so that this is no proof.
			c.Detail += ": the service knows no alias of that name; an ID may be right nevertheless"
		case errors.As(err, &said) && said.Status == http.StatusForbidden:
			c.Detail += ": somebody else's"
			if !said.shape {
				c.OK, c.Detail, c.Fix = false, said.Error(), "name a template that this account may use"
			}
		case err != nil:
			c.OK, c.Detail, c.Fix = false, b.service.fail(ctx, alias, err).Error(), "name a template that the service has"
		}
		checks = append(checks, c)
	}
	return checks
}
