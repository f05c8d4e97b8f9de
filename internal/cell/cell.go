// Package cell holds cell.py: what it means to run a cell of Python.
//
// The value of the last expression, displays, figures, exceptions with the user's own line numbers, exit codes and interrupts must be
// the same wherever Python runs. So they are written once, in Python, and loaded both by the Pyodide worker and by the runner inside a
// container. The source names the protocol between it and its host.
package cell

import (
	_ "embed" // the programs
	"strconv"
)

// Source is the text of cell.py, and in it that of notebook.py, which it loads when a cell asks for what notebooks have beyond Python. It
// runs on Python 3.9 and later, on CPython and on Pyodide, and needs the standard library only.
var Source = cell + "\n\n_NOTEBOOK = " + strconv.QuoteToASCII(notebook) + "\n"

var (
	//go:embed cell.py
	cell string
	//go:embed notebook.py
	notebook string
)
