// Package fake is a backend in memory. It is for tests: of what stands on the contract (router,
// pool, sessions), and of the conformance suite, which it passes with every feature declared.
//
// A [Backend] is the provider: sandboxes with files, limits, a network policy and a life of their
// own, which any number of Executors share. Code is in a small script language (see parse.go) that
// does what the programs of the suite have to do; [Programs] has them. What a Backend does not
// declare its sandboxes do not have.
//
// Nothing is simulated by luck: [Backend.Fail] and [Backend.Hold] make operations fail and wait,
// [Backend.Break] kills a sandbox, [Backend.Sandboxes] counts what was left. But for the programs
// that probe the network there is no I/O, so everything works in the bubbles of testing/synctest. A
// Backend can be reached from another process as well: see [Serve] and [Dial].
package fake
