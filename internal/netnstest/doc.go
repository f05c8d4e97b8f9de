// Package netnstest does a part of a test in a network namespace. It needs Linux and root.
package netnstest
