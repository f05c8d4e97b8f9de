// Package stateless is an adapter of the stateless kind to copy: a service that takes code and gives
// output, here a Python process on this machine. It is on the contract of package driver alone, which
// asks for nothing that such a service does not have.
//
// It is not a sandbox. The code runs with the rights of your user: it can read and delete what you
// can, and reach every network that you reach. The adapter says so as every adapter has to: its type
// is "unsafe-local", its isolation is "process", and since it cannot block the network it declares
// network-full only. So the zero executor.Spec, which means no network, is refused, and a program that
// wants this backend has to ask for the network by name.
//
// Read it in this order: [Open] and the capabilities say what there is, Create makes a sandbox,
// session.Run executes code in it, and supervise.py is the part within the sandbox.
// docs/guides/write-a-stateless-adapter.md says what each part promises.
package stateless
