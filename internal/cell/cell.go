// Package cell holds cell.py: what it means to run a cell of Python.
//
// The value of the last expression, displays, figures, exceptions with the user's own line numbers,
// exit codes and interrupts must be the same wherever Python runs. So they are written once, in
// Python, and loaded both by the Pyodide worker and by the runner inside a container. The source
// names the protocol between it and its host.
package cell

import (
	_ "embed" // the programs
	"strconv"
)

// Source is the text of Program with that of Notebook in it.
var Source = Program + "\n\n_NOTEBOOK = " + strconv.QuoteToASCII(Notebook) + "\n"

// Program is cell.py with streams.py and report.py. Notebook is notebook.py with displays.py,
// charts.py and spawn.py: cell.py loads it from its name _NOTEBOOK when a cell asks for what
// notebooks have beyond Python. They run on Python 3.9 and later, on CPython and on Pyodide, and
// need the standard library only.
var (
	Program  = program + "\n\n" + streams + "\n\n" + report
	Notebook = notebook + "\n\n" + displays + "\n\n" + charts + "\n\n" + spawn
)

var (
	//go:embed cell.py
	program string
	//go:embed streams.py
	streams string
	//go:embed report.py
	report string
	//go:embed notebook.py
	notebook string
	//go:embed displays.py
	displays string
	//go:embed charts.py
	charts string
	//go:embed spawn.py
	spawn string
)
