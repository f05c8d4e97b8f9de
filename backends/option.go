package backends

import "github.com/execbroker/execbroker/executor/sessions"

// An Option sets what a configuration file cannot contain.
type Option func(*options)

type options struct {
	audit   func(Audit)
	store   sessions.Store
	noPools bool
	warn    func(QuotaWarning)
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
