// Package router spreads sessions over several backends by rules, sticky weighted splits and
// fallback. A Router is itself an executor.Executor.
//
// A route is the first whose Match accepts the Spec. Its Split gives each subject one backend and
// keeps it there: the choice is a function of the salt, the subject and the weights, so every
// process and every restart chooses alike, and when a weight grows the only subjects that move are
// those that move to that backend. Fallback takes over a Create that the assigned backend cannot
// do, and nothing later: once code may have run, an error is the caller's to see.
//
// A Router owns nothing and never changes. To change the routes make another one over the same
// backends; sessions that exist stay where they are, because a handle names its backend.
package router
