package backends

import (
	"errors"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
)

// outcome says how a turn ended. fellBack says that another backend than the assigned one served.
func outcome(res *executor.Result, err error, fellBack bool) rollout.Outcome {
	switch {
	case err != nil || res == nil:
		return blame(err)
	case res.Status == executor.StatusLost:
		return rollout.Outage
	case fellBack:
		return rollout.Fallback
	case res.Status == executor.StatusOK:
		return rollout.OK
	}
	return rollout.Code
}

// blame says who is to blame for a failure. Only its own kind counts: its cause may have another,
// such as the refusal of a fallback.
func blame(err error) rollout.Outcome {
	kind := err
	var e *executor.Error
	if errors.As(err, &e) {
		kind = e.Kind
	}
	switch executor.KindName(kind) {
	case "denied":
		if e != nil && strings.HasPrefix(string(e.Denied.Rule), "quota-") {
			return rollout.Quota
		}
		return rollout.Refused
	case "invalid", "unsupported", "too-large", "busy", "closed", "canceled":
		return rollout.Caller
	case "exhausted":
		return rollout.Capacity
	}
	return rollout.Outage
}

// failure says what an error means for an arm: nothing if the caller or a rule is to blame.
func failure(err error) (bad, counts bool) {
	if err == nil {
		return false, true
	}
	counts = blame(err).Counts()
	return counts, counts
}
