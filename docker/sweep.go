package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor/driver"
)

// A running container ends by its supervisor's clock, and then the engine removes it. What is left
// behind nevertheless runs nothing: a container whose creator died before it was started, or one
// whose end an engine has missed because it died itself.

// sweep removes what earlier programs of the owner have left, once in the life of a backend. It is
// no reason to wait and none to fail: session reap removes the same, and says so.
func (b *backend) sweep(f *facts) {
	b.swept.Do(func() {
		b.sweeping.Go(func() {
			ctx, cancel := b.engine.answer(b.life)
			defer cancel()
			if err := b.engine.sweep(ctx, b.env.Owner, f.clock()); err != nil && b.life.Err() == nil {
				b.env.Logger().Warn("removing what earlier programs have left", "error", err)
			}
		})
	})
}

func (e *engine) sweep(ctx context.Context, owner string, now time.Time) error {
	filters := client.Filters{}.Add("label", driver.LabelOwner+"="+owner).
		Add("status", string(container.StateCreated), string(container.StateExited), string(container.StateDead))
	list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if id, ok := abandoned(&list.Items[i], now); ok {
			if err := e.destroy(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// abandoned returns the session of a container that nobody will use any more. One that was only
// just made is about to be started by another program of the same owner. Its age is counted by the
// clock of the engine alone.
func abandoned(c *container.Summary, now time.Time) (id string, ok bool) {
	id = c.Labels[driver.LabelID]
	if c.Labels[labelSpec] == "" || !sessionID.MatchString(id) || !slices.Contains(c.Names, "/"+containerName(id)) {
		return "", false // it carries our labels and is not ours
	}
	switch c.State {
	case container.StateExited, container.StateDead:
		return id, true
	case container.StateCreated:
		return id, now.Sub(time.Unix(c.Created, 0)) > createTimeout
	}
	return "", false
}

// clock returns the time by the engine, or one in which everything is young if it has said none.
func (f *facts) clock() time.Time {
	t, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(f.info.SystemTime))
	if err != nil {
		return time.Time{}
	}
	return t.Add(time.Since(f.at))
}
