// Package router spreads sessions over several backends with rules, sticky weighted splits and
// fallback. A Router is itself an executor.Executor.
//
// The route of a Spec is the first one whose Match accepts it. Its Split assigns each subject to
// one backend and keeps it there: the assignment is a function of the salt, the subject and the
// weights, so every process chooses alike, also after a restart. When a weight grows, the only
// subjects that move are those that move to that backend. Fallback is used only for a Create that
// the assigned backend cannot do. Once code may have run, the caller gets the error.
//
// A Router does not own its backends and never changes. To change the routes, make another Router
// over the same backends. Existing sessions stay where they are, because a handle names its
// backend.
package router
