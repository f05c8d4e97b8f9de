// Package corpus has small programs, as language models and their users write them, for package
// parity to compare backends with. Each shows one thing: how numbers are printed, what an exception
// looks like, what a second cell still knows. Where a type of backend does something else, the
// program says why.
package corpus

import "embed"

// FS holds the programs: a directory for each language, with an archive for each topic.
//
//go:embed python javascript
var FS embed.FS
