// Package thirdparty is an adapter to copy: all that a backend needs to pass the conformance suite, in about two hundred lines, using
// nothing that is internal to this module.
//
// It is not a sandbox. The code runs in a Python process with the rights of your user: it can read and delete what you can, and reach
// every network that you reach. The adapter says so as every adapter has to: its type is "unsafe-local", its isolation is "process", and
// since it cannot block the network it declares network-full only. So the zero executor.Spec, which means no network, is refused, and a
// program that wants this backend has to ask for the network by name.
//
// Read it in this order: [Open] and the capabilities say what there is, create makes a sandbox, session.Run executes code in it, and
// supervise.py is the part within the sandbox.
package thirdparty
