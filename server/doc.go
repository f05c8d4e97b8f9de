// Package server is an HTTP API over any backend: run code once or in sessions, with streamed
// output, files, packages, capabilities and statistics. [OpenAPI] describes it.
//
// # Keys
//
// Every request needs a key, as a bearer token or in X-API-Key, except requests for health and for
// the description. A key has a subject and attributes, which guards and routes use. A session
// belongs to the key that created it. For another key it does not exist.
//
// # Results and errors
//
// An answer with status 200 says what the code did, even if it failed: see executor.Result. Other
// statuses say what the infrastructure could not do, with the kind of the error, whether the code
// may have run, and, if a rule refused, the rule and its numbers. Durations are numbers of seconds.
// Every answer has X-Request-Id.
//
// # Limits
//
// Request bodies are limited in size and time. Runs and sessions are limited in number, for each
// key and in total: see [Config]. If a client disconnects, its run is stopped. [Server.Drain] lets
// runs end before the process ends.
package server
