package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// show prints the output of code while the code runs. To files and pipes it writes the output
// unchanged, and to a terminal without the sequences that a terminal would obey.
type show struct {
	out, err io.Writer
	terminal [2]*sequences // for out and err; nil: unchanged output
	progress *progress
	graphics graphics           // of the terminal out
	dir      *outDir            // for files and images; nil: see charts
	charts   *outDir            // for images that cannot be shown, if dir is nil; created for the first one
	quiet    bool               // print nothing, because a document follows at the end
	colours  bool               // in this program's messages on err
	together bool               // out and err are the same terminal
	limits   executor.RunLimits // limits of the runs

	images  int               // images so far
	shown   int               // images shown in this run
	outputs int               // values in this run
	files   map[int]savedFile // files of images, by the number of the value in this run
	saved   []savedFile
	missing []missedFile
	midway  bool // stdout is in the middle of a line
}

// event is the emit function for Session.Run.
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

// put writes data unchanged.
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

// guard filters output of sandboxes to terminals, if out or err is one.
func (s *show) guard() {
	for i, w := range []io.Writer{s.out, s.err} {
		if isTerminal(w) {
			s.terminal[i] = &sequences{}
		}
	}
}

// sequences returns the filter of a stream, or nil.
func (s *show) sequences(w io.Writer) *sequences {
	if w == s.out {
		return s.terminal[0]
	}
	return s.terminal[1]
}

// ended ends the output of a run, so that colours are reset.
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
		return err // the text of a figure is of no use
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

// image shows the image of a value, if it has one and the terminal can show it. Otherwise the image
// is saved. With --out every image is saved.
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
		if to == nil && (shown || s.quiet) { // the document contains it
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

// picture shows an image on the terminal, unless it cannot be decoded or there are too many.
func (s *show) picture(mime string, data []byte) (shown bool, err error) {
	if s.quiet || !drawable[mime] || s.shown == maxCharts {
		return false, nil
	}
	text, err := s.graphics.draw(data)
	if err != nil {
		return false, nil //nolint:nilerr // the image is saved instead
	}
	if s.midway {
		text = slices.Concat([]byte("\n"), text)
	}
	s.shown++
	return true, s.put(s.out, text)
}

// chartDir returns a new directory of the user for images.
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

// keep records a file that was written.
func (s *show) keep(f savedFile) {
	s.saved = append(s.saved, f)
	s.note("saved %s (%s, %s)", plain(f.Path), plain(f.MIME), size(f.Size))
}

// discard removes the file of an image that the code has saved itself.
func (s *show) discard(f savedFile) error {
	if err := s.dir.remove(f); err != nil {
		return err
	}
	s.saved = slices.DeleteFunc(s.saved, func(g savedFile) bool { return g.Path == f.Path })
	s.note("removed %s: it is the same as the previous file", plain(f.Path))
	return nil
}

// missedFile is a file that could not be saved, also in JSON.
type missedFile struct {
	Name  string `json:"name"` // name in the sandbox
	Error string `json:"error"`
}

// missed records a file that could not be saved. It returns err unless the code caused the failure,
// for example by making the file unreadable.
func (s *show) missed(name string, err error) error {
	s.missing = append(s.missing, missedFile{name, err.Error()})
	s.note("not saved: %s: %s", plain(name), plainText(err.Error()))
	if e := (*executor.Error)(nil); errors.As(err, &e) && slices.ContainsFunc(fileKinds, func(k error) bool { return errors.Is(e.Kind, k) }) {
		return nil
	}
	return err
}

// fileKinds are the kinds of executor.Error that are about a single file.
var fileKinds = []error{fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid, fs.ErrPermission}

// note prints a message about the run on stderr.
func (s *show) note(format string, args ...any) {
	if !s.quiet {
		s.progress.pause()
		if s.together && s.midway {
			_ = s.put(s.out, []byte("\n")) // the next output reports an error
		}
		fmt.Fprintln(s.err, coloured(s.colours, colourNote, fmt.Sprintf("execbroker: "+format, args...)))
	}
}

// result prints how the run ended, if that is not obvious, and returns the exit code.
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
	text := map[executor.Reason]string{
		executor.ReasonMemory:    "it used too much memory",
		executor.ReasonProcesses: "it started too many processes",
		executor.ReasonDisk:      "it used too much disk",
		executor.ReasonOutput:    "it wrote too much output",
		executor.ReasonSignal:    "it was ended by " + plain(r.Signal),
		executor.ReasonReset:     "its interpreter was reset",
		executor.ReasonLifetime:  "the sandbox reached the end of its life",
		executor.ReasonCode:      "it forged or withheld its results",
		executor.ReasonSandbox:   "the sandbox ended",
	}[r.Reason]
	return cmp.Or(text, plain(string(r.Reason)))
}
