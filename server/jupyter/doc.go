// Package jupyter implements the interface of a Jupyter server over any backend, so that programs
// which use one run their cells in sandboxes: its REST interface and the channels of its kernels.
//
// # Kernels
//
// There is a kernel for each language of the backend. A kernel is an interpreter in a sandbox of
// its own, which is a session of a [sessions.Manager] under the subject of the client's key. If the
// sandbox ends, the next cell gets a new one and is told so. Kernels end with the server. A kernel
// does one thing after the other; what asks for a name in its memory waits for the cell before it.
//
// Jupyter's sessions are names for kernels. The contents are the files of the kernels, below a
// directory for each. There are no terminals, comms and debuggers, and the package says so.
//
// # Keys
//
// Clients send their key as the token, in a header or, as the protocol needs it, in the URL. The
// first thing that happens to a request is that the key leaves its URL, so that no log, redirect
// or Referer has it. Kernels belong to the subject: for another one they do not exist.
//
// # Web pages
//
// Requests of pages of other origins and requests for unknown hosts are refused, including those
// for WebSockets. There is no CORS.
//
// [sessions.Manager]: https://pkg.go.dev/github.com/execbroker/execbroker/executor/sessions#Manager
package jupyter
