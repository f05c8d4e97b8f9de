// Package e2b serves E2B's interfaces over any backend. Programs that use E2B's SDKs run on Docker,
// Pyodide or whatever else an [executor.Executor] stands for, without a change to their code:
//
//	E2B_API_URL=http://127.0.0.1:3000 E2B_SANDBOX_URL=http://127.0.0.1:3000 E2B_API_KEY=... node app.js
//
// One [Server] answers for the control plane and for every sandbox. A request is for a sandbox if
// its host name names one ("49999-<id>.<domain>"), or if it has the headers E2b-Sandbox-Id and
// E2b-Sandbox-Port, which the SDKs send. All other requests are for the control plane.
//
// # Configuration
//
// See [Config]. Every request to the control plane needs an API key. A key has its own sandboxes
// and does not see those of other keys.
//
// # What differs from E2B
//
// Sandboxes have no network unless the configuration gives them one or a program asks for it. What
// a backend cannot do, and what this server does not offer (fork, snapshots, volumes, templates),
// is refused with status 501 and a message that names it. Nothing is ignored in silence. The server
// keeps its sandboxes in memory: they end when it ends.
package e2b
