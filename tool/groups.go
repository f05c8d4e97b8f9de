package tool

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// A conversation has a session for each group of languages: one for all if the backend can mix
// them, and one for each if it cannot. A conversation keeps its groups for as long as something is
// known of them, even if its backend or what backends have in common changes meanwhile: otherwise
// it would begin anew without a word.

// key returns the key of the session of a group.
func key(conversation string, group []executor.Language) string {
	names := make([]string, len(group))
	for i, l := range group {
		names[i] = string(l)
	}
	return conversation + "/" + strings.Join(names, "+")
}

// groups returns the groups of a conversation.
func (t *Tool) groups(ctx context.Context, conversation string) (groups [][]executor.Language, err error) {
	known, err := t.m.Known(ctx, conversation+"/")
	for _, k := range known {
		rest := k[len(conversation)+1:]
		if strings.Contains(rest, "/") {
			continue // of a conversation whose ID begins alike
		}
		var g []executor.Language
		for name := range strings.SplitSeq(rest, "+") {
			g = append(g, executor.Language(name))
		}
		groups = append(groups, g)
	}
	return groups, err
}

// group returns the group of a language in a conversation. spec has the group that a new
// conversation would have, of what the backends can do now. A language that the conversation has
// not used gets a group without those that have one. The groups become that of spec once all of
// their sandboxes have ended or leave.
func (t *Tool) group(ctx context.Context, conversation string, l executor.Language, spec executor.Spec) ([]executor.Language, error) {
	want := spec.Languages
	for _, g := range [][]executor.Language{want, {l}} {
		if t.m.Stays(key(conversation, g)) {
			return g, nil
		}
	}
	groups, err := t.groups(ctx, conversation)
	if err != nil {
		return nil, err
	}
	left := slices.Clone(want)
	from := map[string]executor.Language{}
	for _, g := range groups {
		if slices.Equal(g, want) {
			return g, nil
		}
		if len(g) == 1 && slices.Contains(want, g[0]) {
			from[key(conversation, g)] = g[0]
		}
		left = slices.DeleteFunc(left, func(l executor.Language) bool { return slices.Contains(g, l) })
	}
	if len(want) > 1 && len(from) > 0 {
		if merged, err := t.m.Merge(ctx, key(conversation, want), spec, from); merged || err != nil {
			return want, err
		}
	}
	for _, g := range groups {
		if slices.Contains(g, l) {
			return g, nil
		}
	}
	return left, nil
}

// merged reports whether the groups of a conversation were merged into one while this call waited
// for the key of lease, of which nothing was left then.
func (t *Tool) merged(ctx context.Context, lease *sessions.Lease, into string) (bool, error) {
	if lease.Key == into || !lease.Fresh || lease.Kept != nil {
		return false, nil
	}
	known, err := t.m.Known(ctx, into)
	return slices.Contains(known, into), err
}

// lease leases the session of the group of a language.
func (t *Tool) lease(ctx context.Context, c Conversation, l executor.Language, caps executor.Capabilities) (*sessions.Lease, error) {
	spec := t.spec(c, l, caps)
	want := spec.Languages
	alone := want[:1:1]
	if l != Bash {
		alone = []executor.Language{l}
	}
	var err error
	if spec.Languages, err = t.group(ctx, c.ID, alone[0], spec); err != nil {
		return nil, err
	}
	k := key(c.ID, spec.Languages)
	lease, err := t.m.Acquire(ctx, k, spec)
	if err == nil {
		merged, err := t.merged(ctx, lease, key(c.ID, want))
		if err != nil {
			return nil, errors.Join(err, lease.Release())
		}
		if merged {
			spec.Languages = want
			if err := lease.Discard(); err != nil {
				return nil, err
			}
			return t.m.Acquire(ctx, key(c.ID, want), spec)
		}
	}
	if err == nil && len(spec.Languages) > 1 && !caps.Has(executor.FeatureMixedLanguages) && t.m.Leaves(lease.Info().Handle) {
		// It cannot move as it is, and could stay on a backend that is to be left for ever.
		if err := lease.Release(); err != nil {
			return nil, err
		}
		evicted := t.m.Evict(ctx, k)
		if lease, err = t.m.Acquire(ctx, k, spec); evicted != nil {
			return lease, err // it stays for now, as one whose move fails
		}
	}
	if err == nil || len(spec.Languages) == 1 || !apart(err) {
		return lease, err
	}
	into := map[string]executor.Language{}
	for _, l := range spec.Languages {
		into[key(c.ID, []executor.Language{l})] = l
	}
	if err := t.m.Split(ctx, k, spec, into); err != nil {
		return nil, err
	}
	spec.Languages = alone
	return t.m.Acquire(ctx, key(c.ID, alone), spec)
}

// apart reports whether err says that no backend has all languages of a group in one sandbox.
func apart(err error) bool {
	var e *executor.Error
	return errors.As(err, &e) && slices.ContainsFunc(e.Missing, func(what string) bool {
		return what == string(executor.FeatureMixedLanguages) || strings.HasPrefix(what, "language:")
	})
}
