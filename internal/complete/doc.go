// Package complete helps people who type code: it knows where a statement may end, and makes the
// code by which an interpreter says what it knows of the names in its own memory.
//
// That code binds no name of the user and shows one value, with the media type [MIME]. It runs in
// a sandbox that may be hostile, so whoever runs it reads the value as such: see [Found] and
// [Explained].
package complete
