// Package pyodide is the adapter of type "pyodide": sandboxes are processes of Deno on this
// machine, each with a Python, compiled to WebAssembly, in a worker that has no permissions. No
// service, no account and no privilege is needed.
//
//	this program  --stdin, stdout-->  Deno: protocol, clocks, nonce  --shared memory-->  worker: Pyodide, files, the code
//
// Deno and Pyodide come from the npm registry on first use, in the versions that this package pins;
// see [Prepare]. From then on there is no network. What can be made once is made once: a compiled
// standard library, and a snapshot of the memory of an interpreter that has imported the common
// part of it, from which a sandbox starts in a third of a second.
//
// # Configuration
//
// See [Config]. The zero configuration is ready for use where npm is.
//
// # Features
//
// A session has one language. Both have state, values and displays, files, artifacts, input and
// top-level await; Python has interrupts and packages, and JavaScript modules of Node, see
// docs/guides/pyodide.md. A loop in JavaScript can only be ended with its state. There are no
// processes, threads or sockets. Code in Python is three to five times slower than outside.
// Session.Info says what is declared.
//
// A session ends with the program that made it: the sandbox is its child, and ends when its input
// does. Its files live in memory. After each run what has changed of them is kept by this program,
// so that a process that has to be killed, because code does not heed the interrupt, costs the
// variables and not the files. Such code gets two seconds. What a finalizer or a loop in a library
// of C does not notice, the process does.
//
// Sessions start from one snapshot. Python's hash seed is in it, and so the same in each; the
// random module is seeded anew. [Config.NoSnapshot] gives up the one for the other.
//
// # Isolation
//
// From the code outwards: WebAssembly with a cap on memory; a file system in memory with a quota; a
// JavaScript realm from which everything was removed that is not on a list, and in which no code
// can be made from strings; a worker without permissions, in a process that has given up the one it
// had; limits on memory and processor time; and what Config.OSLayer puts around it: namespaces, a
// root of its own and a filter of system calls. The declared isolation says whether that is on. The
// code reaches no network, no file and no variable of this machine. What remains without the outer
// layer is a bug in the engine, V8; with it, one in the kernel as well. Sessions do not share a
// process, but they share the machine: load and timing can be seen.
//
// JavaScript is evaluated by the engine itself, in a realm of the same kind, so that without the
// outer layer its isolation is that of a process. It exists on Linux only, where the memory of a
// process can be bounded.
//
// # As
//
// There is nothing for executor.As to find.
package pyodide
