// Package pool keeps warm sessions ready, so that a Create that would take seconds takes the time
// of one question to the backend.
//
// A session is used once: it goes from the pool to one caller and never back, because it has run
// that caller's code and no reset proves otherwise. Warm sessions carry the owner and nothing of a
// user. What is known only when one is handed out is its labels, its idle TTL and the limits of its
// runs; a Spec that asks for anything else than the pool has is created cold, and counted as a
// bypass.
package pool
