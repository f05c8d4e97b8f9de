// Package execbroker is the root of a module that runs untrusted code in sandboxes on
// interchangeable backends. It has no code of its own; import the packages below it.
//
//   - executor is what applications use: an Executor creates sessions, a Session runs code.
//   - pyodide, bubblewrap, docker, kubernetes, e2b, flymachines and modal are the backends; each has an
//     Open that returns an Executor.
//   - backends makes one Executor of a configuration file.
//   - conformance is the suite that says what every backend must do.
//   - runner and executor/driver are for those who write another backend; examples/thirdparty shows
//     how.
//
// The shortest program is examples/quickstart. On the command line, cmd/execbroker does the same.
package execbroker
