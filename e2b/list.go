package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// labelNote is the label with what other processes have to know about a session. Like all labels it
// never changes.
const labelNote = executor.ReservedPrefix + "e2b.note"

// remembered is the value of labelNote.
type remembered struct {
	Created  time.Time       `json:"created"` // by the clock of the creator: all holders say the same
	Template string          `json:"template,omitempty"`
	Limits   executor.Limits `json:"limits"` // in force
}

// sessionInfo describes a sandbox to driver.New. Whoever has the key of the account can create
// sandboxes with any metadata.
func sessionInfo(id string, state api.State, metadata map[string]string) (executor.SessionInfo, error) {
	info := executor.SessionInfo{Handle: executor.Handle{Session: id}, State: executor.SessionDead, Labels: maps.Clone(metadata)}
	if state == api.Running || state == api.Paused { // which Attach resumes
		info.State = executor.SessionRunning
	}
	note, ok := metadata[labelNote]
	if !ok {
		return info, errGone(id) // there is one of that name, but it is no session
	}
	delete(info.Labels, labelNote)
	var r remembered
	if err := json.Unmarshal([]byte(note), &r); err != nil {
		return info, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("sandbox %s: metadata %s: %w", id, labelNote, err))
	}
	info.Template, info.Limits, info.Created, info.Handle.Created = r.Template, r.Limits, r.Created, r.Created
	return info, nil
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

// Lookup implements driver.Attacher.
func (b *backend) Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error) {
	if !sandboxID.MatchString(h.Session) { // it comes from a handle, and becomes part of a path
		return executor.SessionInfo{}, errGone(printable(h.Session, maxTrace))
	}
	d, offset, err := b.get(ctx, h.Session)
	if err != nil {
		return executor.SessionInfo{}, err
	}
	if d.SandboxID != h.Session {
		return executor.SessionInfo{}, errGone(h.Session)
	}
	return describe(d, offset)
}

// Attach implements driver.Attacher. Of the handle only the ID is used, and the service says who
// owns that sandbox.
func (b *backend) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	info, err := b.Lookup(ctx, h)
	if err != nil {
		return nil, err
	}
	// Connecting sets the life of a sandbox to 5 minutes unless it is told another. What is left
	// changes nothing.
	found, err := b.service.connect(ctx, h.Session, wholeSeconds(time.Until(info.Expires)))
	if err != nil {
		return nil, b.failed(ctx, h.Session, "connecting to a sandbox", err)
	}
	if found.SandboxID != h.Session {
		return nil, driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("the service has connected to sandbox %s instead", found.SandboxID))
	}
	d := b.service.daemon(found)
	r, err := b.bridge(ctx, d, h.Fence)
	if err != nil {
		return nil, err
	}
	s := b.session(info, d, r, nil, h.Fence)
	if b.cfg.kernel() == KernelCodeInterpreter {
		return b.notebook(s, found), nil
	}
	return s, nil
}

// Destroy implements driver.Attacher.
func (b *backend) Destroy(ctx context.Context, h executor.Handle) error {
	if !sandboxID.MatchString(h.Session) {
		return nil
	}
	if err := b.service.kill(ctx, h.Session); err != nil {
		return b.service.fail(ctx, "killing a sandbox", err)
	}
	return nil
}

// Sessions implements driver.Lister. Sandboxes that another client has paused are listed, too: as
// running, since they are resumed by use.
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
