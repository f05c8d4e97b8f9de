// Package e2b serves E2B's interfaces over any backend, so that programs which use E2B's SDKs run on Docker, Pyodide or whatever else an
// [executor.Executor] stands for, without a change to their code:
//
//	E2B_API_URL=http://127.0.0.1:3000 E2B_SANDBOX_URL=http://127.0.0.1:3000 E2B_API_KEY=... node app.js
//
// One [Server] answers for the control plane and for every sandbox. A request belongs to a sandbox if its host name is that of one
// ("49999-<id>.<domain>") or if it carries the headers E2b-Sandbox-Id and E2b-Sandbox-Port, as the SDKs send them; everything else is for
// the control plane.
//
// # Configuration
//
// See [Config]. Without an API key nobody gets in. Each key has sandboxes of its own, and those of another do not exist for it.
//
// # What differs from E2B
//
// Sandboxes have no network unless the configuration gives them one or a program asks for it. What a backend cannot do, and what this
// server does not offer (fork, snapshots, volumes, templates), is refused with status 501 and says what is missing; nothing is
// ignored in silence. Sandboxes belong to the process: they end with it, since their registry is in memory.
package e2b
