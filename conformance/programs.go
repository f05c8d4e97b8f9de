package conformance

import (
	"github.com/execbroker/execbroker/conformance/cases"
	"github.com/execbroker/execbroker/executor"
)

// Python and JavaScript are the programs of the suite. Those for Python need CPython 3.9 or later,
// or Pyodide. Those for JavaScript need Node.js 18 or later with require in scope, or, as far as
// they need neither files nor processes, any engine with a console.
var (
	Python     = Programs{Language: executor.Python, Source: cases.Source(executor.Python)}
	JavaScript = Programs{Language: executor.JavaScript, Source: cases.Source(executor.JavaScript)}
)

// ProgramNames lists the programs that cases use.
//
// Where a program has {{name}} it gets a literal, see T.Program: a number if the description calls
// it one, else a string. "Prints" means a line on stdout, flushed. Names of files are absolute or
// relative to the directory that the code starts in.
func ProgramNames() (infos []ProgramInfo) {
	for _, p := range cases.Programs() {
		infos = append(infos, ProgramInfo(p))
	}
	return infos
}
