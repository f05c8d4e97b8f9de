package checkpoint_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

func TestSeal(t *testing.T) {
	key, archive := bytes.Repeat([]byte{7}, checkpoint.MinKey), []byte("archive")
	was := checkpoint.Binding{
		Owner: "app", Subject: "ann", Conversation: "c", Language: executor.Python, Isolation: executor.IsolationContainer,
		Network: executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"a.example", "b.example"}},
	}
	sealed, err := checkpoint.Seal(key, was, archive)
	check(t, err)
	hosts := func(h ...string) executor.NetworkPolicy {
		return executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: h}
	}
	for name, c := range map[string]struct {
		edit func(*checkpoint.Binding)
		ok   bool
		rule executor.Rule
	}{
		"same":         {func(*checkpoint.Binding) {}, true, ""},
		"owner":        {func(b *checkpoint.Binding) { b.Owner = "other" }, false, executor.RuleOwner},
		"subject":      {func(b *checkpoint.Binding) { b.Subject = "bob" }, false, executor.RuleOwner},
		"conversation": {func(b *checkpoint.Binding) { b.Conversation = "d" }, false, executor.RuleOwner},
		"language":     {func(b *checkpoint.Binding) { b.Language = executor.JavaScript }, false, ""},
		"no-network":   {func(b *checkpoint.Binding) { b.Network = executor.NetworkPolicy{} }, true, ""},
		"fewer-hosts":  {func(b *checkpoint.Binding) { b.Network = hosts("b.example") }, true, ""},
		"other-host":   {func(b *checkpoint.Binding) { b.Network = hosts("b.example", "c.example") }, false, ""},
		"wildcard":     {func(b *checkpoint.Binding) { b.Network = hosts("*.example") }, false, ""},
		"full":         {func(b *checkpoint.Binding) { b.Network.Mode = executor.NetworkFull }, false, ""},
		"stronger":     {func(b *checkpoint.Binding) { b.Isolation = executor.IsolationMicroVM }, true, ""},
		"weaker":       {func(b *checkpoint.Binding) { b.Isolation = executor.IsolationProcess }, false, ""},
		"incomparable": {func(b *checkpoint.Binding) { b.Isolation = executor.IsolationWasm }, false, ""},
		"unknown":      {func(b *checkpoint.Binding) { b.Isolation = "" }, false, ""},
	} {
		now := was
		c.edit(&now)
		got, err := checkpoint.Open(key, now, sealed)
		if c.ok && (err != nil || !bytes.Equal(got, archive)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if e := (*executor.Error)(nil); !c.ok && (!errors.Is(err, executor.ErrDenied) || !errors.As(err, &e) || e.Denied.Rule != c.rule) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range sealed {
		changed := slices.Clone(sealed)
		changed[i] ^= 1
		if _, err := checkpoint.Open(key, was, changed); !errors.Is(err, executor.ErrDenied) {
			t.Fatalf("byte %d may change: %v", i, err)
		}
		if _, err := checkpoint.Open(key, was, sealed[:i]); !errors.Is(err, executor.ErrDenied) {
			t.Fatalf("%d bytes suffice: %v", i, err)
		}
	}
	if _, err := checkpoint.Open(bytes.Repeat([]byte{8}, checkpoint.MinKey), was, sealed); !errors.Is(err, executor.ErrDenied) {
		t.Errorf("another key: %v", err)
	}
	if _, err := checkpoint.Seal(key[1:], was, archive); !errors.Is(err, executor.ErrInvalid) {
		t.Errorf("a short key: %v", err)
	}
}
