package modal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strconv"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// The tags of a Sandbox. The first three are searched for, and the note says what is true: it is
// cut into pieces, because Modal does not say how long a value may be.
const (
	tagManager = "execbroker"
	manager    = "1"
	tagOwner   = "execbroker-owner" // hash
	tagSession = "execbroker-session"
	tagNote    = "execbroker-note-"
	notePiece  = 1000
	notePieces = 16
)

var (
	sessionID = regexp.MustCompile(`^[a-z0-9]{26}$`)
	sandboxID = regexp.MustCompile(`^sb-[A-Za-z0-9_-]{1,64}$`)
)

// tags returns the tags of a Sandbox to be made.
func tags(s *runner.Start) (map[string]string, error) {
	t := map[string]string{tagManager: manager, tagOwner: remote.OwnerHash(s.Labels[driver.LabelOwner]), tagSession: s.ID}
	note := s.Note()
	for i := 0; note != ""; i++ {
		if i == notePieces {
			return nil, driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("labels: more than fit into %d tags of a Sandbox; use fewer or shorter ones", notePieces))
		}
		n := min(len(note), notePiece)
		t[tagNote+strconv.Itoa(i)], note = note[:n], note[n:]
	}
	return t, nil
}

// sessionInfo describes a Sandbox by its tags. Who has a token of the workspace can change them.
func sessionInfo(id string, t map[string]string) (executor.SessionInfo, error) {
	session := t[tagSession]
	if t[tagManager] != manager || !sessionID.MatchString(session) {
		return executor.SessionInfo{}, notFound() // it is not ours
	}
	note := ""
	for i := range notePieces {
		note += t[tagNote+strconv.Itoa(i)]
	}
	info, err := runner.Recall(session, note)
	if err != nil {
		return info, err
	}
	if l := info.Labels; l[driver.LabelID] != session || remote.OwnerHash(l[driver.LabelOwner]) != t[tagOwner] {
		return info, driver.Fail(executor.ErrNotFound, executor.RanNo, fmt.Errorf("Sandbox %s says different things about whose it is", id))
	}
	info.Handle.State, err = json.Marshal(state{id})
	return info, err
}

// Find implements runner.Finder. The handle has an ID as a hint, and the tags of the Sandbox say
// whose it is.
func (b *backend) Find(ctx context.Context, h executor.Handle) (runner.Sandbox, executor.SessionInfo, error) {
	if !sessionID.MatchString(h.Session) {
		return nil, executor.SessionInfo{}, notFound()
	}
	var hint state
	if json.Unmarshal(h.State, &hint) == nil && sandboxID.MatchString(hint.Sandbox) {
		sb, err := b.sdk.Sandboxes.FromID(ctx, hint.Sandbox, nil)
		if err != nil {
			return nil, executor.SessionInfo{}, fail(ctx, "Sandbox "+hint.Sandbox, err)
		}
		x, info, err := b.found(ctx, h.Session, sb)
		if !errors.Is(err, executor.ErrNotFound) {
			return x, info, err
		}
	}
	for attempt := range attempts {
		name := sandboxName(h.Session, attempt)
		sb, err := b.sdk.Sandboxes.FromName(ctx, b.cfg.App, name, nil)
		if err == nil {
			return b.found(ctx, h.Session, sb)
		}
		if !missing(err) {
			return nil, executor.SessionInfo{}, fail(ctx, "Sandbox "+name, err)
		}
	}
	return nil, executor.SessionInfo{}, notFound()
}

// found returns the Sandbox of a session, if it is that.
func (b *backend) found(ctx context.Context, session string, sb *sdk.Sandbox) (runner.Sandbox, executor.SessionInfo, error) {
	t, err := sb.GetTags(ctx, nil)
	if err != nil {
		return nil, executor.SessionInfo{}, fail(ctx, "Sandbox "+sb.SandboxID, err)
	}
	info, err := sessionInfo(sb.SandboxID, t)
	if err == nil && info.Handle.Session != session {
		err = notFound()
	}
	if err != nil {
		return nil, info, err
	}
	x := &sandbox{b: b, id: sb.SandboxID, image: b.cfg.image(info.Template)}
	r, gone, err := x.result(ctx, false)
	switch {
	case err != nil:
		return nil, info, fail(ctx, "Sandbox "+sb.SandboxID, err)
	case gone:
		return nil, info, notFound()
	case r != nil:
		info.State = executor.SessionDead
	}
	return x, info, nil
}

// Sessions implements driver.Lister. Modal lists the Sandboxes that live.
func (b *backend) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		for info, err := range b.sessions(ctx, labels[driver.LabelOwner]) {
			if errors.Is(err, executor.ErrNotFound) || err == nil && !remote.Carries(info.Labels, labels) {
				continue // it carries our tags and is not ours, or not asked for
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// sessions lists the Sandboxes of an owner, or of all.
func (b *backend) sessions(ctx context.Context, owner string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		app, err := b.theApp(ctx, false)
		switch {
		case errors.Is(err, executor.ErrNotFound): // nobody has made a session yet
			return
		case err != nil:
			yield(executor.SessionInfo{}, err)
			return
		}
		with := map[string]string{tagManager: manager}
		if owner != "" {
			with[tagOwner] = remote.OwnerHash(owner)
		}
		for x, err := range b.living(ctx, app, with) {
			if err != nil {
				yield(executor.SessionInfo{}, err)
				return
			}
			if !yield(sessionInfo(x.id, x.tags)) {
				return
			}
		}
	}
}

// listed is a Sandbox of a list.
type listed struct {
	id   string
	tags map[string]string
}

// living lists the Sandboxes of an app that live and have all of the given tags. It ends at the
// first error.
func (b *backend) living(ctx context.Context, app *sdk.App, with map[string]string) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		cctx, c := watched(ctx)
		list, err := b.sdk.Sandboxes.List(cctx, &sdk.SandboxListParams{AppID: app.AppID, Tags: with})
		if err != nil {
			yield(listed{}, fail(ctx, "app "+b.cfg.App, err))
			return
		}
		seen := map[string]bool{}
		for sb, err := range list {
			switch {
			case err != nil:
				err = fail(ctx, "app "+b.cfg.App, err)
			case seen[sb.SandboxID]: // the SDK would ask for the same page for ever
				err = driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("app %s: Modal lists Sandbox %s again and again; try later", b.cfg.App, sb.SandboxID))
			}
			if err != nil {
				yield(listed{}, err)
				return
			}
			seen[sb.SandboxID] = true
			if !yield(listed{sb.SandboxID, c.take(sb.SandboxID)}, nil) {
				return
			}
		}
	}
}
