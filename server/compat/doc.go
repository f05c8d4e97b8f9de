// Package compat implements the HTTP interfaces of other services that run code, over any backend,
// so that users of their clients change only a URL. [Names] lists them.
//
// # Fronts
//
// One table describes all interfaces: the routes of each, how a request is decoded, and how an
// answer is encoded. A [Front] serves one of them below a path, and several can share a port. Every
// run has a sandbox of its own, which ends with the run. What code leaves behind, such as files for
// a later request, is kept in memory, bounded in size and time, under the subject that it belongs
// to: for another subject it does not exist.
//
// # Keys
//
// A key is a bearer token or in one of the headers that the clients of these services use, never
// in a URL. It has a subject and attributes: see server.Keys. Clients of some interfaces can send
// no key. Such a front needs keys nevertheless, which a proxy may add, unless only this machine can
// reach the server, or unless its configuration names a subject and allows requests without a key.
// Keys that other services publish as their defaults are refused.
//
// # Web pages
//
// Requests of pages of other origins and requests for unknown hosts are refused, including those
// for WebSockets. There is no CORS.
package compat
