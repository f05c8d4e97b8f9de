// Package e2btest runs servers that stand in for E2B in tests: sandboxes are containers of the Docker engine that tests use, in which
// clients may also be root, as they may at E2B. It is for tests only.
package e2btest
