package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// show prints what code does while it does it. What the code writes goes to the terminal as it is.
type show struct {
	out, err io.Writer
	progress *progress
	dir      *outDir            // where images go; nil: nowhere
	quiet    bool               // for a document that comes at the end
	limits   executor.RunLimits // of the runs

	images int // so far
	saved  []savedFile
	midway bool // stdout is within a line
}

// event is for Session.Run.
func (s *show) event(ev executor.Event) error {
	switch ev.Kind {
	case executor.EventStdout:
		return s.write(s.out, ev.Data)
	case executor.EventStderr:
		return s.write(s.err, ev.Data)
	case executor.EventOutput:
		return s.output(*ev.Output)
	}
	return nil
}

func (s *show) write(w io.Writer, data []byte) error {
	if s.quiet || len(data) == 0 {
		return nil
	}
	s.progress.pause()
	if w == s.out {
		s.midway = data[len(data)-1] != '\n'
	}
	_, err := w.Write(data)
	return err
}

// output saves the image of a value, or prints its text.
func (s *show) output(o executor.Output) error {
	image, err := s.image(o.Data)
	if err != nil || image && !o.Main {
		return err // the text of a figure says nothing
	}
	text, ok := o.Data["text/plain"]
	if !ok || len(text) == 0 {
		return nil
	}
	if s.midway {
		text = slices.Concat([]byte("\n"), text)
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = slices.Concat(text, []byte("\n"))
	}
	return s.write(s.out, text)
}

// image keeps the image of a value, if it has one.
func (s *show) image(b executor.MIMEBundle) (has bool, err error) {
	for _, kind := range images {
		data, ok := b[kind.mime]
		if !ok {
			continue
		}
		if s.images++; s.dir == nil {
			s.note("%s of %s is not shown; --out DIR keeps it", kind.mime, size(int64(len(data))))
			return true, nil
		}
		f, err := s.dir.save(fmt.Sprintf("output-%d%s", s.images, kind.ending), kind.mime, bytes.NewReader(data))
		if err != nil {
			return true, err
		}
		s.keep(f)
		return true, nil
	}
	return false, nil
}

// keep notes a file that was written.
func (s *show) keep(f savedFile) {
	s.saved = append(s.saved, f)
	s.note("saved %s (%s, %s)", plain(f.Path), plain(f.MIME), size(f.Size))
}

// note says something about the run, on stderr.
func (s *show) note(format string, args ...any) {
	if !s.quiet {
		s.progress.pause()
		fmt.Fprintf(s.err, "execbroker: "+format+"\n", args...)
	}
}

// result says how the run ended, if there is something to say, and returns the exit code.
func (s *show) result(r *executor.Result) int {
	if e := r.Exception; e != nil {
		text := e.Traceback
		if text == "" {
			text = e.Type + ": " + e.Message
		}
		if !s.quiet {
			s.progress.pause()
			fmt.Fprintln(s.err, strings.TrimRight(plainText(text), "\n"))
		}
	}
	switch r.Status {
	case executor.StatusOK:
		return exitOK
	case executor.StatusTimedOut:
		s.note("stopped at the time limit, %v", s.limits.WallTime)
		return exitTimeout
	case executor.StatusKilled:
		s.note("stopped: %s", killed(r))
	case executor.StatusFailed:
		if r.Exception == nil {
			s.note("the code ended with exit code %d", r.ExitCode)
		}
	}
	return exitFailed
}

// killed explains a StatusKilled.
func killed(r *executor.Result) string {
	switch r.Reason {
	case executor.ReasonMemory:
		return "it used more memory than it may"
	case executor.ReasonProcesses:
		return "it started more processes than it may"
	case executor.ReasonDisk:
		return "it used more disk than it may"
	case executor.ReasonOutput:
		return "it wrote more output than it may"
	case executor.ReasonSignal:
		return "it was ended by " + plain(r.Signal)
	case executor.ReasonReset:
		return "its interpreter was reset"
	case executor.ReasonLifetime:
		return "the life of the sandbox was over"
	case executor.ReasonSandbox:
		return "the sandbox ended"
	}
	return plain(string(r.Reason))
}
