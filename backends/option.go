package backends

import "github.com/execbroker/execbroker/executor/sessions"

// An Option adds to a Broker what a file cannot say.
type Option func(*options)

type options struct {
	audit func(Audit)
	store sessions.Store
	brief bool
}

// WithAudit makes the Broker call f after each Acquire of its Manager, Create, Attach, Run and
// Install, and each file that is written or read, those included that the guard refused. Calls come
// from many goroutines, and the caller of the operation waits for them.
func WithAudit(f func(Audit)) Option { return func(o *options) { o.audit = f } }

// WithStore makes the session manager keep its records in s, which stays the caller's, instead of
// where Sessions.Store says. Package storetest checks implementations.
func WithStore(s sessions.Store) Option { return func(o *options) { o.store = s } }

// WithoutPools is for programs that end soon: pools are checked like everything else, and no
// session is kept warm.
func WithoutPools() Option { return func(o *options) { o.brief = true } }
