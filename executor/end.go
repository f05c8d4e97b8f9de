package executor

// Ender is what As finds in the sessions that hear of the end of their sandbox without asking, over
// a connection of their own for example.
type Ender interface {
	// AfterEnd calls f once, on a goroutine of its own, when the sandbox has ended, a later holder
	// has shut this one out, or the connection to the sandbox was cut. Refresh tells which. If that
	// has happened already, it calls f at once. What this holder ends by Close, Detach or Suspend
	// does not count. The function that AfterEnd returns prevents a call that has not begun.
	AfterEnd(f func()) (stop func() bool)
}
