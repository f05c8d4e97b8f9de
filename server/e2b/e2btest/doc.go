// Package e2btest runs servers that stand in for E2B in tests of clients. Sandboxes are containers
// of the Docker engine that tests use, in which clients may also be root, as they may at E2B, or
// those of any other backend. What E2B does that clients trip over can be turned on: see [Faults].
package e2btest
