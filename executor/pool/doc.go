// Package pool keeps started sessions ready, called warm sessions. A Create that would take seconds
// then takes only the time of one request to the backend.
//
// A session is used only once: it goes from the pool to one caller and never back, because it has
// run that caller's code and no reset proves that nothing is left of it. Warm sessions carry the
// owner and nothing that belongs to a user. Labels, idle TTL and the limits of runs are set when a
// session is handed out. A Spec that needs anything else that the pool does not have gets a new
// session, called cold, which counts as a bypass.
package pool
