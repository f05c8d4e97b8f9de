package backends

import (
	"context"

	"github.com/execbroker/execbroker/executor/sessions"
)

// An Option sets what a configuration file cannot contain.
type Option func(*options)

type options struct {
	audit   func(Audit)
	store   sessions.Store
	noPools bool
	warn    func(QuotaWarning)
	arms    func(context.Context, ArmChoice) (string, error)
}

// WithAudit makes the Broker call f after each Acquire of its Manager, each Create, Attach, Run and
// Install, and each file that is written or read, including those that the guard refused. f is
// called from many goroutines, and the operation waits for it.
func WithAudit(f func(Audit)) Option { return func(o *options) { o.audit = f } }

// WithStore makes the session manager keep its records in s instead of Sessions.Store. The caller
// still owns s. Package storetest checks implementations.
func WithStore(s sessions.Store) Option { return func(o *options) { o.store = s } }

// WithoutPools is for programs that end soon: pools are checked like everything else, but no
// session is kept warm.
func WithoutPools() Option { return func(o *options) { o.noPools = true } }

// WithQuotaWarnings makes the Broker call f when something was granted beyond a soft quota. f is
// called from many goroutines, and the operation waits for it.
func WithQuotaWarnings(f func(QuotaWarning)) Option { return func(o *options) { o.warn = f } }

// WithArms makes f choose the arm of each new session instead of the hash of its subject, on routes
// whose split has several arms with weight. f returns the backend, or "" for the hash. So does an
// error, or a backend that is not among the arms, which the Exposure in the audit tells: a rollout
// that gives an arm nothing cannot be overruled. To keep subjects with their arms, f must answer
// alike for each of them. Conversations stay with their sandbox as without f. f is called from many
// goroutines, its context ends after a second, and the operation waits for it.
func WithArms(f func(ctx context.Context, c ArmChoice) (backend string, err error)) Option {
	return func(o *options) { o.arms = f }
}
