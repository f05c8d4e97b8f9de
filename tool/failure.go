package tool

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// failure says why a run did not succeed and what to do. It is empty if the run succeeded.
func (w *writer) failure() string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	e := w.res.Exception
	switch {
	case w.res.Status == executor.StatusOK:
		return ""
	case w.res.Status == executor.StatusFailed && e != nil:
		add(w.exception(e))
	case w.res.Status == executor.StatusFailed:
		add(fmt.Sprintf("The program ended with exit code %d.", w.res.ExitCode))
	default:
		add(w.ending())
		if e != nil {
			add(w.exception(e))
		}
	}
	if w.res.Status == executor.StatusTimedOut || w.res.Status == executor.StatusKilled || w.res.StateLost || w.res.FilesLost {
		if lost := w.lost(); lost != "" {
			add(lost)
		} else if w.r.Input.Language != Bash && w.c.HasFor(w.r.Input.Language, executor.FeatureState) {
			add("Variables and files are still there.")
		}
	}
	if hint := w.hint(); hint != "" {
		add("Hint: " + hint)
	}
	return strings.Join(parts, "\n")
}

// ending says what stopped the code.
func (w *writer) ending() string {
	switch w.res.Status {
	case executor.StatusTimedOut:
		return fmt.Sprintf("The program was stopped by its timeout, after %s. What it had printed is there.", inSeconds(w.res.Duration))
	case executor.StatusCanceled:
		return "The program was cancelled."
	case executor.StatusLost:
		return "It is not known how the program ended; it may still run."
	}
	if w.res.Reason == executor.ReasonSignal {
		return fmt.Sprintf("The program crashed (%s).", w.res.Signal)
	}
	why := map[executor.Reason]string{
		executor.ReasonMemory:    "it used too much memory",
		executor.ReasonProcesses: "it started too many processes",
		executor.ReasonDisk:      "it wrote too much to the disk",
		executor.ReasonOutput:    "it printed too much",
		executor.ReasonReset:     "the session was reset",
		executor.ReasonLifetime:  "the sandbox has reached the end of its life",
		executor.ReasonCode:      "it forged or withheld its results",
	}[w.res.Reason]
	return "The program was stopped because " + cmp.Or(why, "its sandbox ended") + "."
}

// exception returns the traceback, or its last line if there is none, and the line of the code if
// the traceback does not show it.
func (w *writer) exception(e *executor.Exception) string {
	last := strings.TrimSuffix(plain([]byte(e.Type+": "+e.Message)), ": ")
	text := cut(cmp.Or(reduce(strings.TrimRight(plain([]byte(e.Traceback)), "\n")), last), w.o.MaxOutput)
	lines := strings.Split(w.r.Input.Code, "\n")
	if e.Line > 0 && e.Line <= len(lines) {
		if line := strings.TrimSpace(plain([]byte(lines[e.Line-1]))); line != "" && !strings.Contains(text, cut(line, maxLine)) {
			text = fmt.Sprintf("%s\nLine %d of the code: %s", text, e.Line, cut(line, maxLine))
		}
	}
	return text
}

const (
	maxLine   = 200 // bytes of a line of code
	maxFrames = 12  // frames of one stack
)

var (
	pythonFrame = regexp.MustCompile(`^  File "([^"]*)", line \d+`)
	scriptFrame = regexp.MustCompile(`^\s+at (?:.* \()?((?:file://|node:|/|[A-Za-z]:\\)[^)]*)\)?$`)
)

// reduce keeps only the frames of the model's own code in a traceback, and only the first and last
// frames of a long stack. Backends do the same, but this is the last chance to hide the paths of a
// host from a model.
func reduce(traceback string) string {
	var kept []string
	var frames []int // where the frames of the current stack begin in kept
	fold := func() {
		if n := len(frames) - maxFrames; n > 0 {
			from, to := frames[maxFrames/3], frames[maxFrames/3+n]
			rest := append([]string{fmt.Sprintf("  [... %d frames left out ...]", n)}, kept[to:]...)
			kept = append(kept[:from], rest...)
		}
		frames = nil
	}
	skipping := false
	for line := range strings.SplitSeq(traceback, "\n") {
		if m := pythonFrame.FindStringSubmatch(line); m != nil {
			if skipping = !own(m[1]); skipping {
				continue
			}
			frames = append(frames, len(kept))
		} else if m := scriptFrame.FindStringSubmatch(line); m != nil && !own(strings.TrimPrefix(m[1], "file://")) {
			continue
		} else if skipping && (strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "  [")) {
			continue // source and markers of a frame that was left out
		} else if !strings.HasPrefix(line, "  ") {
			skipping = false
			fold()
		}
		kept = append(kept, line)
	}
	fold()
	return strings.Join(kept, "\n")
}

// own reports whether the file of a frame belongs to the model's code: a cell, or a file that the
// code created.
func own(file string) bool {
	if strings.HasPrefix(file, "<") {
		return !strings.HasPrefix(file, "<frozen ")
	}
	return strings.HasPrefix(file, executor.Workdir+"/")
}
