package e2b

import (
	"context"
	"iter"
	"maps"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/runner"
)

// labelNote holds what a process that did not create the session has to know of it. It does not change, as no label does.
const labelNote = executor.ReservedPrefix + "e2b.note"

// sessionInfo describes a sandbox. Who has the key of the account can make sandboxes with any metadata there.
func sessionInfo(id string, state api.State, metadata map[string]string) (executor.SessionInfo, error) {
	info, err := runner.Recall(id, metadata[labelNote])
	if state != api.Running && state != api.Paused { // which Connect resumes
		info.State = executor.SessionDead
	}
	info.Labels = maps.Clone(metadata)
	delete(info.Labels, labelNote)
	return info, err
}

// describe is sessionInfo of what the service says.
func describe(d *api.SandboxDetail, offset time.Duration) (executor.SessionInfo, error) {
	var metadata map[string]string
	if d.Metadata != nil {
		metadata = *d.Metadata
	}
	info, err := sessionInfo(d.SandboxID, d.State, metadata)
	info.Expires = d.EndAt.Add(-offset)
	return info, err
}

// Find implements runner.Finder. Nothing in the handle is an address but the ID, and the service says whose that is.
func (b *backend) Find(ctx context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	if !sandboxID.MatchString(h.Session) { // it comes from a handle, and becomes part of a path
		return nil, executor.SessionInfo{}, errGone(printable(h.Session, maxTrace))
	}
	d, offset, err := b.get(ctx, h.Session)
	if err != nil {
		return nil, executor.SessionInfo{}, err
	}
	if d.SandboxID != h.Session {
		return nil, executor.SessionInfo{}, errGone(h.Session)
	}
	info, err := describe(d, offset)
	return &sandbox{b: b, id: h.Session, created: info.Created, expires: info.Expires}, info, err
}

// Sessions implements driver.Lister. Sandboxes that another client has paused are listed, too: as running, since they are resumed by use.
func (b *backend) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		more := true
		err := b.service.all(ctx, labels, func(d api.SandboxDetail) bool {
			more = yield(describe(&d, 0))
			return more
		})
		if err != nil && more {
			yield(executor.SessionInfo{}, b.service.fail(ctx, "listing sandboxes", err))
		}
	}
}
