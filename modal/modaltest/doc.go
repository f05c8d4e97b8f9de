// Package modaltest stands in for Modal: a gRPC server, over a Docker engine, with the methods that
// Modal's own Go SDK calls for apps, images, Sandboxes and the processes in them. It is written
// against the public messages of Modal, and shares nothing with the adapter. Modal's SDK is the
// client that checks it.
//
// Sandboxes are containers. Both generations of Modal's API are there, V1 and V2. What the server
// does not do, it refuses with Unimplemented and the name of the field or method: volumes, tunnels,
// proxies, allow-lists of networks, snapshots, sidecars, probes, GPUs, the streams of the main
// process. A field that the messages do not have is refused too. Regions, cloud, runtime and
// verbose are taken and change nothing, since all Sandboxes are containers of one engine. The
// timeout of a process ends its streams; the process itself ends with its Sandbox, because an
// engine has no way to end one process.
//
// A container is no boundary like Modal's gVisor or virtual machines. Only trusted programs should
// connect, so a Server listens on loopback.
//
// What Modal does that no documentation says, the server decides against the client where that
// makes a difference: it pays no heed to x-idempotency-key, ends processes with their Sandbox, and
// has lost an answer when a [Switch] says so. [Server.Counts] says what was really done.
package modaltest
