//go:build !linux

package conformance

// adoptOrphans does nothing where processes cannot be counted either.
func adoptOrphans(bool) {}
