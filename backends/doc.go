// Package backends opens the backends of a configuration and gives the program one [Broker], which
// is an executor.Executor. The package imports no adapter: a program lists the adapters that it
// links in a [Registry].
//
// # Configuration
//
// A configuration is YAML or JSON. The keys below "backends" are names that the program chooses.
// Each entry has a type, which selects the adapter. The other keys are the settings of that
// adapter, except "broker", which says what the broker does with the backend:
//
//	backends:
//	  local: {type: pyodide}
//	  box:   {type: docker, image: "docker.io/library/python:3.13", broker: {pools: [{size: 4}], queue: {max: 100}, breaker: {failures: 5}}}
//	routes:
//	  - {name: premium, match: {attributes: {plan: pro}}, salt: "2026-11", split: [{backend: box,
//	    weight: 90}, {backend: local, weight: 10}], fallback: [local]}
//	  - {name: default, split: [{backend: local, weight: 1}]}
//	sessions: {store: "sqlite:sessions.db", max_per_subject: 2, max_total: 500}
//	guard: {code_bytes: 10240, runs_per_minute: 10, runs_at_once: 2}
//
// It is decoded strictly. All errors are reported at once, each with its path and, if possible,
// with what was probably meant. Only those parts of YAML are accepted that JSON can express, so
// that a file means what it looks like: one document, text as keys, numbers as in JSON, and no
// anchors, aliases, merge keys or tags. Text that YAML takes for a number is refused where text is
// wanted. So "version: 3.10" is an error instead of version 3.1.
//
// Secrets are never part of a configuration. It refers to them: {env: E2B_API_KEY} or {file:
// /run/secrets/e2b}.
//
// # How a session is created
//
// The guard refuses what no backend may do. The routes name the backends to try. A backend whose
// breaker is open fails at once with ErrUnavailable. Otherwise it hands out a warm session of a
// pool that fits, or waits in its queue and creates a session. A failure before any code has run
// falls back along the route. The caller gets later failures. Broker.Reload changes all of this
// while sessions live.
// sessions live.
package backends
