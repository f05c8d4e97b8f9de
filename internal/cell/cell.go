// Package cell contains cell.py and cell.mjs, which define what it means to run a cell of Python
// and of JavaScript.
//
// The value of the last expression, displays, figures, exceptions with the user's own line numbers,
// exit codes and interrupts must be the same wherever Python runs. So they are implemented once, in
// Python, and loaded both by the Pyodide worker and by the runner in a container. The source
// describes the protocol between it and its host. JavaScript is evaluated in two ways, and what its
// cells mean is one source in the same way.
package cell

import (
	_ "embed" // for the programs
	"strconv"
)

// Source is the text of Program, including that of Notebook.
var Source = Program + "\n\n_NOTEBOOK = " + strconv.QuoteToASCII(Notebook) + "\n"

// Program is cell.py with streams.py and report.py. Notebook is notebook.py with displays.py,
// charts.py and spawn.py. cell.py loads it from its variable _NOTEBOOK when a cell uses features of
// notebooks that plain Python lacks. They run on Python 3.9 and later, on CPython and Pyodide, and
// need only the standard library.
var (
	Program  = program + "\n\n" + streams + "\n\n" + report
	Notebook = notebook + "\n\n" + displays + "\n\n" + charts + "\n\n" + spawn
)

// JavaScript is cell.mjs, a module that exports one function.
//
//go:embed cell.mjs
var JavaScript string

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
