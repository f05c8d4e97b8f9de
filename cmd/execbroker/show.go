package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// show prints what code does while it does it. What the code writes goes to files and pipes as it
// is, and to a terminal without what a terminal would obey.
type show struct {
	out, err io.Writer
	terminal [2]*sequences // for out and err; nil: as it is
	progress *progress
	graphics graphics           // of the terminal that out is
	dir      *outDir            // where files and images go; nil: see charts
	charts   *outDir            // where images go that cannot be shown, if dir is nil; made when there is one
	quiet    bool               // for a document that comes at the end
	colours  bool               // in what this program says on err
	together bool               // out and err are on one terminal
	limits   executor.RunLimits // of the runs

	images  int               // so far
	shown   int               // of them, in this run
	outputs int               // values, in this run
	files   map[int]savedFile // of images, by the number of the value in this run
	saved   []savedFile
	missing []missedFile
	midway  bool // stdout is within a line
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
	if s.quiet {
		return nil
	}
	if t := s.sequences(w); t != nil {
		data = t.add(nil, data)
	}
	return s.put(w, data)
}

// put writes data as it is.
func (s *show) put(w io.Writer, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	s.progress.pause()
	if w == s.out {
		s.midway = data[len(data)-1] != '\n'
	}
	_, err := w.Write(data)
	return err
}

// guard has what comes from sandboxes made fit for terminals, where there are any.
func (s *show) guard() {
	for i, w := range []io.Writer{s.out, s.err} {
		if isTerminal(w) {
			s.terminal[i] = &sequences{}
		}
	}
}

// sequences returns what stands before a stream, or nil.
func (s *show) sequences(w io.Writer) *sequences {
	if w == s.out {
		return s.terminal[0]
	}
	return s.terminal[1]
}

// ended says that the output of a run is over, so that colours are set back.
func (s *show) ended() error {
	var errs []error
	for _, w := range []io.Writer{s.out, s.err} {
		if t := s.sequences(w); t != nil {
			midway := s.midway
			errs = append(errs, s.put(w, t.end(nil)))
			s.midway = midway
		}
	}
	return errors.Join(errs...)
}

// output saves the image of a value, or prints its text.
func (s *show) output(o executor.Output) error {
	defer func() { s.outputs++ }()
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

// image shows the image of a value, if it has one and the terminal can. What is not shown is saved,
// and with --out every image is.
func (s *show) image(b executor.MIMEBundle) (has bool, err error) {
	for _, kind := range images {
		data, ok := b[kind.mime]
		if !ok {
			continue
		}
		s.images++
		shown, err := s.picture(kind.mime, data)
		if err != nil {
			return true, err
		}
		to := s.dir
		if to == nil && (shown || s.quiet) { // the document has it
			return true, nil
		}
		if to == nil {
			if to, err = s.chartDir(); err != nil {
				return true, err
			}
		}
		f, err := to.save(fmt.Sprintf("output-%d%s", s.images, kind.ending), kind.mime, bytes.NewReader(data))
		if err != nil {
			return true, err
		}
		if s.files == nil {
			s.files = map[int]savedFile{}
		}
		s.files[s.outputs] = f
		s.keep(f)
		return true, nil
	}
	return false, nil
}

// picture shows an image on the terminal. What cannot be decoded, or is one too many, is not shown.
func (s *show) picture(mime string, data []byte) (shown bool, err error) {
	if s.quiet || !drawable[mime] || s.shown == maxCharts {
		return false, nil
	}
	text, err := s.graphics.draw(data)
	if err != nil {
		return false, nil //nolint:nilerr // it is saved
	}
	if s.midway {
		text = slices.Concat([]byte("\n"), text)
	}
	s.shown++
	return true, s.put(s.out, text)
}

// chartDir returns a new directory of the user's for images.
func (s *show) chartDir() (*outDir, error) {
	if s.charts != nil {
		return s.charts, nil
	}
	name, err := os.MkdirTemp("", "execbroker-charts-")
	if err != nil {
		return nil, err
	}
	s.charts, err = openOutDir(name)
	return s.charts, err
}

// keep notes a file that was written.
func (s *show) keep(f savedFile) {
	s.saved = append(s.saved, f)
	s.note("saved %s (%s, %s)", plain(f.Path), plain(f.MIME), size(f.Size))
}

// discard removes the file of an image that was saved by the code as well.
func (s *show) discard(f savedFile) error {
	if err := s.dir.remove(f); err != nil {
		return err
	}
	s.saved = slices.DeleteFunc(s.saved, func(g savedFile) bool { return g.Path == f.Path })
	s.note("removed %s: it is the file before", plain(f.Path))
	return nil
}

// missedFile is a file that was not saved, in JSON too.
type missedFile struct {
	Name  string `json:"name"` // in the sandbox
	Error string `json:"error"`
}

// missed notes a file that could not be saved, and returns err unless the code is to blame, such as
// for a file that nobody may read.
func (s *show) missed(name string, err error) error {
	s.missing = append(s.missing, missedFile{name, err.Error()})
	s.note("not saved: %s: %s", plain(name), plainText(err.Error()))
	if e := (*executor.Error)(nil); errors.As(err, &e) && slices.ContainsFunc(fileKinds, func(k error) bool { return errors.Is(e.Kind, k) }) {
		return nil
	}
	return err
}

// fileKinds are the kinds of executor.Error that are about one file.
var fileKinds = []error{fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid, fs.ErrPermission}

// note says something about the run, on stderr.
func (s *show) note(format string, args ...any) {
	if !s.quiet {
		s.progress.pause()
		if s.together && s.midway {
			_ = s.put(s.out, []byte("\n")) // if it is gone the next output says so
		}
		fmt.Fprintln(s.err, coloured(s.colours, colourNote, fmt.Sprintf("execbroker: "+format, args...)))
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
			fmt.Fprintln(s.err, coloured(s.colours, colourError, strings.TrimRight(plainText(text), "\n")))
		}
	}
	switch r.Status {
	case executor.StatusOK:
		if len(s.missing) > 0 {
			return exitFailed
		}
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
	case executor.ReasonCode:
		return "it forged or withheld what is collected of it"
	case executor.ReasonSandbox:
		return "the sandbox ended"
	}
	return plain(string(r.Reason))
}
