// Package backends opens what a configuration describes and gives the program one [Broker], which
// is an executor.Executor. It imports no adapter: a program says in a [Registry] which ones it
// links.
//
// # Configuration
//
// A configuration is YAML or JSON. The keys below "backends" are names of the program's choice.
// Each entry has a type, which says which adapter opens it, beside it the settings of that adapter,
// and under "broker" what the broker does with the backend:
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
// It is decoded strictly, and all mistakes are reported at once, each with its path and, where
// there is one, what was probably meant. Of YAML it takes what JSON can say, so that a file means
// what it looks like: no anchors and aliases, no merge keys, no tags, no keys but text, one
// document, numbers as JSON writes them. Text that YAML takes for a number is refused where text is
// wanted, and so "version: 3.10" is a mistake and not version 3.1.
//
// Secrets are never part of a configuration. It names them: {env: E2B_API_KEY} or {file:
// /run/secrets/e2b}.
//
// # The way of a session
//
// The guard refuses what no backend may do. The routes name the backends to try. Each of them
// answers at once with ErrUnavailable while its breaker is open, hands out a warm session of a pool
// that fits, or waits in its queue and creates one. What fails before anything has run falls back
// along the route; what fails later is the caller's to see. Broker.Reload changes all of this while
// sessions live.
package backends
