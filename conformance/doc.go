// Package conformance checks that an executor.Executor keeps the contract.
//
// The suite believes what a backend declares and checks both sides: what is declared must work,
// what is not must be refused or be absent. A case that does not apply one way applies the other
// way. The engine does not import testing; package conformancetest joins it to go test.
//
// # What a run does
//
// [Run] starts what the [Target] needs, opens an Executor and runs every [Case]. A case gets a [T]:
// sessions that it makes through T carry the label of the run and are closed at its end, errors
// that the implementation gave the kind ErrInternal fail it wherever it met them, and a call that
// does not come back when its context ends fails it as well. Such a call is left behind, and the
// cases after it get a new Executor. Cases that count what is left (goroutines, processes,
// descriptors, temporary files, sandboxes) come last.
//
// # Outcomes
//
// There are seven, and only two are green. Passed and Refused say which form of a case held. Failed
// says that the contract was broken, Errored that the suite could not find out. Known and Stale are
// about failures that the target lists. Unchecked is a hole: a feature that is not declared and has
// no negative form, a missing program, a case that was not selected. A hole keeps a report from
// being conformant unless the case does not apply: a [executor.Promise] that is not made, and a
// case that needs a second feature which is not declared, ask nothing of the backend. Their lines
// say so.
//
// # What it does to the machine
//
// The cases about networks listen, for as long as they run, on ports of the loopback addresses and,
// if the backend's sandboxes have a network of their own, of the addresses of the machine's
// interfaces. Only the programs of the suite are told these ports. Nothing is sent to another
// machine, but for what a backend itself needs: its provider, its registry of packages. Environment
// variables of the process, $TMPDIR among them, are changed for some time.
package conformance

// Version identifies the cases. It grows whenever a case is added or changes its meaning.
const Version = "2"
