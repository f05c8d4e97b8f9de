// Package sharetest lets parallel subtests share what takes long to make: a session, a stand-in.
package sharetest

import "testing"

// A Pool holds values that subtests use one after the other. Each subtest has one to itself,
// because it breaks it, or sees in it what any other subtest does.
type Pool[T any] chan T

// size is how many subtests of one test run side by side at most. More would each cost another
// value.
const size = 3

// New returns a Pool with values that one makes. Call it in the test whose subtests take them, so
// that what one registers with t.Cleanup happens when all of them have ended.
func New[T any](one func() T) Pool[T] {
	p := make(Pool[T], size)
	for range size {
		p <- one()
	}
	return p
}

// Take waits for a value, which t has until its other cleanups are done. A test takes one at most,
// after t.Parallel.
func (p Pool[T]) Take(t *testing.T) T {
	t.Helper()
	v := <-p
	t.Cleanup(func() { p <- v })
	return v
}
