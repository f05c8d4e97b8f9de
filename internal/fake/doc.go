// Package fake is a backend in memory. It is for tests of the packages that use the contract
// (router, pool, sessions), and for tests of the conformance suite, which it passes with every
// feature declared.
//
// A [Backend] is the provider: it has sandboxes with files, limits, a network policy and a limited
// life, and any number of Executors share it. Code is in a small script language (see parse.go)
// that can do what the programs of the suite must do; [Programs] returns these programs. A sandbox
// does not have the features that its Backend does not declare.
//
// Failures are never random: [Backend.Fail] and [Backend.Hold] make operations fail and wait,
// [Backend.Break] kills a sandbox, and [Backend.Sandboxes] lists what was left. Except for the
// programs that probe the network there is no I/O, so everything works in bubbles of
// testing/synctest. Other processes can use a Backend too: see [Serve] and [Dial].
package fake
