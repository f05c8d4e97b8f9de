// Package mutate measures what the tests prove: it changes the code in one place at a time, at
// random, and finds out which test notices.
//
//	go run ./internal/ci mutate -seed 1 -n 30            from the packages of the table below
//	go run ./internal/ci mutate -n 5 docker              from one of them
//	go run ./internal/ci mutate -list                    what would be drawn, without a test
//
// Each change is tried alone with the tests of its own package. Those that these do not notice are
// made together and tried with make test of all that depends on them, and then with make
// exhaustive. If only that notices one, make test has lost a proof that it should have, and the
// command fails. A change that neither notices is listed: it has no effect, or a test is missing.
//
// Changes are made in a copy of the working tree. The same seed draws the same changes as long as
// the sources are the same.
package mutate
