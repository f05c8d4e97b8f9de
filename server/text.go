package server

import (
	"fmt"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Text returns the standard output or the standard error of a run for interfaces that know only
// text: what is not UTF-8 is replaced, and a note says where output is missing.
func Text(res *executor.Result, stream executor.EventKind) string {
	b := res.Stdout
	if stream == executor.EventStderr {
		b = res.Stderr
	}
	valid := func(b executor.Bytes) string { return strings.ToValidUTF8(string(b), "\ufffd") }
	for _, g := range res.Dropped {
		if g.Stream == stream && 0 <= g.At && g.At <= len(b) {
			return valid(b[:g.At]) + fmt.Sprintf("\n[... %d bytes left out ...]\n", g.Bytes) + valid(b[g.At:])
		}
	}
	return valid(b)
}

// Failure says in words how the code of a run has failed: its traceback, if there is one.
func Failure(res *executor.Result) string {
	switch e := res.Exception; {
	case e != nil && e.Traceback != "":
		return e.Traceback
	case e != nil:
		return e.Type + ": " + e.Message
	case res.Status == executor.StatusFailed:
		return fmt.Sprintf("Exited with code %d", res.ExitCode)
	}
	return fmt.Sprint(res.Err())
}
