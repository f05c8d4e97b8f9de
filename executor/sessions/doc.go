// Package sessions gives each application key, for example a conversation, one session that
// survives restarts of the program and is used by one process at a time.
//
// A [Manager] maps keys to sandboxes. What it knows is in a [Store] that all processes of a
// deployment share; what it holds open is in the process. [Manager.Acquire] leases the session of a
// key: it is the one held here, or one that is attached to, or a new one, and [Lease.Fresh] says
// so. A new sandbox knows nothing of what was before: [Lease.Lost] says whether there was anything.
// After [Lease.Release] the session stays attached for the next message, and any process may take
// over.
//
// A lease has an owner, an expiry and a token. A process that dies blocks a key for the time of a
// lease, not for ever. One that sleeps and wakes up is shut out by the token: in the Store always,
// in the sandbox where the backend has fencing, and otherwise by its own clock, which ends the
// lease here before it ends in the Store.
//
// Where the backend cannot attach, a session lives in one process. Other processes get an
// [ElsewhereError] that names it, so that a front end can send the request there.
package sessions
