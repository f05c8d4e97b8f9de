// Package fake is a backend in memory. It is for tests of the packages that use the contract
// (router, pool, sessions), and for tests of the conformance suite, which it passes with every
// feature declared.
//
// A [Backend] is the provider: it has sandboxes with files, limits, a network policy and a limited
// life, and any number of Executors share it. A sandbox does not have the features that its Backend
// does not declare.
//
// Code is Starlark, with if, for and while at the top level, and with functions of ours (see
// builtins.go) that do what the programs of the suite must do; [Programs] returns these programs.
// What differs from other Starlark:
//
//	x = 41                  variables live in the interpreter; a later program can use and change them
//	x + 1                   as the last statement: the value of the program
//	nothing                 an unknown name is an error only when it is used
//	print("a", [1, None])   writes values other than texts and bytes as JSON
//	throw("E", "m")         throws an error
//	attempt(f, x)           calls f(x), and returns the text of the error that it throws, or None
//	awaited(f())            as f(), where the language has top-level await; elsewhere, a syntax error
//
// Texts have no \xff: that is for bytes, b"\xff". There is no recursion. Starlark bounds the
// nesting of a program and the repetition of a text, and we its size. Nothing bounds the memory
// that a program makes in steps.
//
// Failures are never random: [Backend.Fail] and [Backend.Hold] make operations fail and wait,
// [Backend.Break] kills a sandbox, and [Backend.Sandboxes] lists what was left. Except for the
// programs that probe the network there is no I/O, so everything works in bubbles of
// testing/synctest. Other processes can use a Backend too: see [Serve] and [Dial].
package fake
