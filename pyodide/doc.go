// Package pyodide is the adapter of type "pyodide". A sandbox is a Deno process on this machine
// with Python, compiled to WebAssembly, in a worker without permissions. It needs no service, no
// account and no privileges.
//
//	this program  --stdin, stdout-->  Deno: protocol, clocks, nonce  --shared memory-->  worker: Pyodide, files, the code
//
// Deno and Pyodide are downloaded from the npm registry on first use, in the versions that this
// package pins; see [Prepare]. After that no network is needed. Two things are made only once: a
// compiled standard library, and a memory snapshot of an interpreter that has imported the common
// part of it. From the snapshot a sandbox starts in a third of a second. Config.Spares says how
// many processes are started before a session needs them.
//
// # Configuration
//
// See [Config]. The zero configuration works if npm is available.
//
// # Features
//
// A session has one language. Both languages have state, values and displays, files, artifacts,
// input and top-level await. Python also has interrupts and packages, and JavaScript has modules of
// Node; see docs/guides/pyodide.md. A loop in JavaScript can be stopped only by giving up its
// state. There are no processes, threads or sockets. Python code is three to five times slower than
// outside. Session.Info lists what is declared.
//
// A session ends with the program that made it: the sandbox is a child process, and ends when its
// input ends. Its files are in memory. After each run this program saves the files that have
// changed. If a process must be killed, because code ignores the interrupt for two seconds, only
// the variables are lost. Killing the process also stops code that an interrupt cannot stop, such
// as a finalizer or a loop in a C library.
//
// Sessions start from the same snapshot. The snapshot contains Python's hash seed, so all sessions
// have the same seed; the random module is seeded again. With [Config.NoSnapshot] each session has
// a different hash seed, but starts more slowly.
//
// # Isolation
//
// The layers from the code outwards are: WebAssembly with a limit on memory; a file system in
// memory with a quota; a JavaScript realm from which everything was removed that is not on a list,
// and in which strings cannot become code; a worker without permissions, in a process that has
// given up its only permission; limits on memory and processor time; and the layer of
// Config.OSLayer: namespaces, a private root directory and a filter of system calls. The declared
// isolation says whether that outer layer is active. The code can reach no network, and no file or
// environment variable of this machine. To escape, code needs a bug in the engine, V8, and with the
// outer layer also a bug in the kernel. Sessions do not share a process, but they share the
// machine, so load and timing are visible.
//
// JavaScript is evaluated by the engine itself, in a realm of the same kind. So without the outer
// layer its isolation is that of a process. It is available on Linux only, where the memory of a
// process can be limited.
//
// # As
//
// executor.As finds nothing in sessions of this backend.
package pyodide
