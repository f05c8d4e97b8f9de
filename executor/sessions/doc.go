// Package sessions gives each application key, for example a conversation, one session. The session
// survives restarts of the program and is used by one process at a time.
//
// A [Manager] maps keys to sandboxes. It keeps its records in a [Store] that all processes of a
// deployment share, and its open sessions in the process. [Manager.Acquire] leases the session of a
// key: the session that the process holds, one that it attaches to, or a new one. [Lease.Fresh]
// says whether it is new. A new sandbox goes on from the last checkpoint of the key, if
// [Options.Checkpoint] is set, and has nothing of an earlier one otherwise: see [Lease.Lost] and
// [Lease.Kept]. After [Lease.Release] the session stays attached for the next message, and any
// process may take over.
//
// By the same means a conversation leaves its sandbox before that ends: for another backend
// ([Options.Move], [Manager.Drain]), for a bigger one ([Options.Escalate]), to make room
// ([Options.Evict], [Manager.Evict]), or as a copy ([Lease.Fork]).
//
// A lease has an owner, an expiry and a token. If a process dies, the key is blocked until the
// lease expires. A process that was stopped and wakes up later is shut out by the token: always in
// the Store, and in the sandbox if the backend has fencing. Otherwise its own clock shuts it out,
// because a lease ends in its process before it ends in the Store.
//
// If the backend cannot attach, a session lives in one process. Other processes get an
// [ElsewhereError] that names that process, so that a front end can send the request there.
package sessions
