// Package server is an HTTP API over any backend: run code once or in sessions, with output as it
// comes, files, packages, capabilities and figures. [OpenAPI] describes it.
//
// # Keys
//
// Every request but those for health and the description has a key, as a bearer token or in
// X-API-Key. A key has a subject and attributes, which guards and routes go by. Sessions belong to
// the key that made them; for another they do not exist.
//
// # Results and errors
//
// What the code did is in an answer with status 200, also if it failed: see executor.Result. Other
// statuses say what the infrastructure did not do, with its kind, whether the code may have run,
// and, where a rule refuses, which and by which figures. Times that pass are numbers of seconds.
// Every answer has X-Request-Id.
//
// # Limits
//
// Bodies are bounded in size and time, runs and sessions in number, for each key and all together:
// see [Config]. A client that goes away stops its run. [Server.Drain] lets runs end before a
// process does.
package server
