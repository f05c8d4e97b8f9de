// Package compare says where two runs of the same code differ in what a program or a user sees of
// them: status, exit code, exception, output, values, artifacts and what is kept. It leaves out
// what differs from run to run: durations, identities, the addresses of objects and the frames of
// tracebacks. Differences that are documented are told from those that nothing explains.
//
// Everything that is compared comes from sandboxes. It is bounded in size.
package compare
