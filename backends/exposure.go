package backends

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/router"
)

// ArmChoice is what a function of WithArms chooses from.
type ArmChoice struct {
	Route      string
	Subject    string            // of the Spec or, if it has none, a random one for this session
	Attributes map[string]string // of the Spec; must not be changed
	Arms       []router.Share    // those with weight
}

// Exposure says which arm a session was assigned to. Its names are those of the event
// feature_flag.evaluation in the semantic conventions of OpenTelemetry, whose terms are
// OpenFeature's.
type Exposure struct {
	Key          string `json:"feature_flag.key"`                     // the route
	Variant      string `json:"feature_flag.result.variant"`          // the assigned backend
	Reason       string `json:"feature_flag.result.reason"`           // "split": the hash; "targeting_match": the function of WithArms; "error": the hash, because that failed
	ContextID    string `json:"feature_flag.context.id,omitempty"`    // the subject of the Spec
	ProviderName string `json:"feature_flag.provider.name,omitempty"` // "execbroker"
	ErrorType    string `json:"error.type,omitempty"`                 // for the reason "error": "general"
	ErrorMessage string `json:"error.message,omitempty"`
}

const (
	// chooseTime bounds a call of the function of WithArms.
	chooseTime = time.Second
	// maxErrorMessage bounds what it says in an audit, in bytes.
	maxErrorMessage = 500
)

// choose asks the function of WithArms. The exposure is nil if there is nothing to choose.
func (b *Broker) choose(ctx context.Context, d router.Decision, spec executor.Spec, subject string) (c router.Choice, e *Exposure) {
	if d.Bucket == 0 {
		return c, nil
	}
	e = &Exposure{Key: d.Route, Variant: d.Assigned, Reason: "split", ContextID: spec.Subject, ProviderName: "execbroker"}
	if b.opts.arms == nil {
		return c, e
	}
	arms := slices.DeleteFunc(slices.Clone(d.Split), func(s router.Share) bool { return s.Weight == 0 })
	ctx, cancel := context.WithTimeout(ctx, chooseTime)
	defer cancel()
	arm, err := b.opts.arms(ctx, ArmChoice{Route: d.Route, Subject: subject, Attributes: spec.Attributes, Arms: slices.Clone(arms)})
	if err == nil && arm != "" && !slices.ContainsFunc(arms, func(s router.Share) bool { return s.Backend == arm }) {
		err = fmt.Errorf("%.100q has no weight in the split", arm)
	}
	switch {
	case err != nil:
		c.Reason = "error"
		message := err.Error()
		e.ErrorType, e.ErrorMessage = "general", strings.ToValidUTF8(message[:min(len(message), maxErrorMessage)], "")
	case arm != "":
		c.Backend, c.Reason, e.Variant = arm, "targeting_match", arm
	}
	if c.Reason != "" {
		e.Reason = c.Reason
	}
	return c, e
}
