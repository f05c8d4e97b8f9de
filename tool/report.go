package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Outcome is the input of Report.
type Outcome struct {
	Input  Input
	Result *executor.Result
	// Lost says that the conversation had an older sandbox that is gone: see sessions.Lease.
	Lost bool
	// Why is the reason for Lost, if it is known: see sessions.Lease.
	Why sessions.Loss
	// Kept is what the sandbox got from the last checkpoint, if it is new: see sessions.Lease.
	Kept *sessions.Kept
	// First says that no code in this language had run in the sandbox before, so that a run with
	// StateFresh has lost nothing.
	First bool
	// There has the names of files in the working directory, if the code tried to use a file that
	// does not exist. Nil: not known.
	There []string
}

// Report describes a run for a model, within the limits of o. c are the capabilities of the backend
// and o the options of the tool. To the output of the code it adds what the model cannot know: what
// was left out, which state is gone, and how to go on after frequent errors.
func Report(r Outcome, c executor.Capabilities, o Options) Output {
	w := writer{r: r, res: r.Result, c: c, o: o.with(c)}
	w.out = Output{Success: w.res.Status == executor.StatusOK, Language: r.Input.Language, ExecutionTime: w.res.Duration.Seconds()}
	w.out.Stdout = w.stream(executor.EventStdout, w.res.Stdout)
	w.out.Stderr = w.stream(executor.EventStderr, w.res.Stderr)
	w.files(w.outputs())
	w.out.Error = w.failure()
	w.state()
	if len(r.Input.Ignored) > 0 {
		w.out.note(cut(fmt.Sprintf("Arguments that the tool does not have were ignored: %s.", plain([]byte(strings.Join(r.Input.Ignored, ", ")))), maxCause))
	}
	return w.out
}

// writer builds an Output.
type writer struct {
	r   Outcome
	res *executor.Result
	c   executor.Capabilities
	o   Options
	out Output
}

// stream returns the kept output of a stream, with a note where a part is missing.
func (w *writer) stream(kind executor.EventKind, b executor.Bytes) string {
	for _, g := range w.res.Dropped {
		if g.Stream == kind && 0 <= g.At && g.At <= len(b) {
			// Cut both sides as if nothing were missing. The note then counts everything that is
			// missing.
			half := w.o.MaxOutput / 2
			head, tail := b[:g.At], b[g.At:]
			dropped := g.Bytes
			if len(head) > half {
				n := start(head, half)
				dropped, head = dropped+int64(len(head)-n), head[:n]
			}
			if len(tail) > half {
				n := end(tail, len(tail)-half)
				dropped, tail = dropped+int64(n), tail[n:]
			}
			return plain(head) + missing(dropped) + plain(tail)
		}
	}
	return cut(plain(b), w.o.MaxOutput)
}

// images are the media types of images, in the order of preference for models.
var images = []string{"image/png", "image/jpeg", "image/webp", "image/gif", "image/svg+xml"}

// texts are the media types that a model can read, in the order of preference. A Python table as
// text/plain is readable too.
var texts = []string{"text/markdown", "text/plain", "text/latex", "application/json", "text/html"}

// outputs adds the outputs. It returns which output has become which of Images.
func (w *writer) outputs() (image map[int]int) {
	image = map[int]int{}
	left, out := w.o.MaxImageBytes, 0
	shown := strings.Builder{}
	for i, v := range w.res.Outputs {
		if t, data, ok := v.Data.Best(images...); ok {
			if !isImage(t, data) || len(w.out.Images) >= w.o.MaxImages || int64(len(data)) > left {
				out++
				continue
			}
			left -= int64(len(data))
			image[i] = len(w.out.Images)
			w.out.Images = append(w.out.Images, Image{Type: t, Base64: data})
			continue
		}
		if data, ok := v.Data["application/json"]; ok && v.Main && len(data) <= w.o.MaxOutput && json.Valid(data) {
			w.out.ReturnValue = json.RawMessage(data)
			continue
		}
		mime, data, ok := v.Data.Best(texts...)
		if markdown, isTable := table(v.Data["text/html"]); isTable && mime != "text/markdown" {
			data = executor.Bytes(markdown)
		}
		switch {
		case !ok:
			w.out.note("A value that has no text was left out.")
		case v.Main:
			w.out.ReturnValue = cut(plain(data), w.o.MaxOutput)
		default:
			shown.WriteString(strings.TrimSuffix(plain(data), "\n") + "\n")
		}
	}
	if out > 0 {
		w.out.note(fmt.Sprintf("%d images were left out, which were too many, too large or damaged.", out))
	}
	if shown.Len() > 0 {
		if n := len(w.out.Stdout); n > 0 && w.out.Stdout[n-1] != '\n' {
			w.out.Stdout += "\n"
		}
		w.out.Stdout += cut(shown.String(), w.o.MaxOutput)
	}
	return image
}

// isImage reports whether data begins as its type requires. The data is passed to decoders of other
// programs.
func isImage(mime string, data []byte) bool {
	switch mime {
	case "image/png":
		return bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n"))
	case "image/jpeg":
		return bytes.HasPrefix(data, []byte("\xff\xd8\xff"))
	case "image/gif":
		return bytes.HasPrefix(data, []byte("GIF8"))
	case "image/webp":
		return bytes.HasPrefix(data, []byte("RIFF")) && len(data) > 12 && string(data[8:12]) == "WEBP"
	}
	return bytes.Contains(data[:min(len(data), 4096)], []byte("<svg"))
}

// files lists the files. A file that was also displayed is passed on only once, as an image.
func (w *writer) files(image map[int]int) {
	shown := w.res.Shown()
	left, empty := w.o.MaxFileBytes, 0
	omitted := w.res.ArtifactsOmitted
	for i, a := range w.res.Artifacts {
		if len(w.out.Files) >= w.o.MaxFiles {
			omitted++
			continue
		}
		f := File{Name: QuoteName(a.Name), Type: a.MIME, Size: a.Size}
		if at, ok := image[shown[i]]; ok && w.out.Images[at].Type == a.MIME && w.out.Images[at].File == "" {
			w.out.Images[at].File = f.Name
		} else if n := int64(len(a.Data)); n == a.Size && n <= left {
			left -= n
			f.Base64 = a.Data
		} else {
			empty++
		}
		w.out.Files = append(w.out.Files, f)
	}
	if omitted > 0 {
		w.out.note(fmt.Sprintf("%d more files were made or changed than are listed; they are in the working directory.", omitted))
	}
	if empty > 0 {
		w.out.note(fmt.Sprintf("%d files are too large to be passed on with their contents; they are in the working directory.", empty))
	}
}

// state says what later calls cannot rely on.
func (w *writer) state() {
	if w.r.Lost && w.r.Kept.Restored() {
		w.out.note(fmt.Sprintf("This is a new sandbox%s. %s", because(w.r.Why), restored(w.r.Kept)))
	} else if w.r.Lost {
		w.out.note(fmt.Sprintf("This is a new sandbox%s: variables and files of earlier calls are gone.", because(w.r.Why)))
	} else if w.beganAnew() && w.r.Input.Language != Bash {
		w.out.note("This run began without variables of earlier calls. Define again what you need; files are still there.")
	}
	if n := len(w.res.LeftRunning); n > 0 {
		names := strings.Join(quoteNames(w.res.LeftRunning[:min(n, maxNames)]), ", ")
		w.out.note(fmt.Sprintf("Still running after this call: %s. What it prints is not seen.", cut(names, maxCause)))
	}
	if w.out.Error == "" { // otherwise Error says so
		if s := w.lost(); s != "" {
			w.out.note(s)
		}
	}
}

// restored says what a checkpoint has kept, and what it has not.
func restored(k *sessions.Kept) string {
	some := func(all []string) string {
		more := ""
		if n := len(all) - maxNames; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return cut(strings.Join(all[:min(len(all), maxNames)], ", "), maxCause) + more
	}
	text := "It goes on from a checkpoint of the earlier one, which had no variables and no files."
	switch n, f := len(k.Names), len(k.Files); {
	case n > 0 && f > 0:
		text = fmt.Sprintf("It goes on from a checkpoint of the earlier one, with the variables %s, and the files %s.", some(quoteNames(k.Names)), some(quoteNames(k.Files)))
	case n > 0:
		text = fmt.Sprintf("It goes on from a checkpoint of the earlier one, with the variables %s. There were no files.", some(quoteNames(k.Names)))
	case f > 0:
		text = fmt.Sprintf("It goes on from a checkpoint of the earlier one, with the files %s. Variables of earlier calls are gone.", some(quoteNames(k.Files)))
	}
	if k.Behind > 0 {
		text += fmt.Sprintf(" The last calls, %d of them, came after it: run them again if you need what they did.", k.Behind)
	}
	if len(k.Omitted) > 0 {
		var lost []string
		for _, o := range k.Omitted {
			lost = append(lost, QuoteName(o.Name)+" ("+QuoteName(o.Reason)+")")
		}
		text += fmt.Sprintf(" Not kept: %s.", some(lost))
	}
	return text
}

// because says why the sandbox is not the earlier one, if that is known.
func because(why sessions.Loss) string {
	return map[sessions.Loss]string{
		sessions.LossGone:        ", because the earlier one has ended, as it does when it is not used for long or when it fails",
		sessions.LossUnavailable: ", because the service that ran the earlier one does not answer",
		sessions.LossAbandoned:   ", because the application has given up the earlier one",
		sessions.LossEvicted:     ", because the earlier one was ended to make room",
		sessions.LossMoved:       ", because the conversation has moved to another service",
		sessions.LossForked:      ", because this conversation begins as a copy of another one",
	}[why]
}

// beganAnew reports whether variables of earlier calls were gone when the run began.
func (w *writer) beganAnew() bool {
	return w.res.StateFresh && !w.r.First && w.c.HasFor(w.r.Input.Language, executor.FeatureState)
}

// lost says what this run has destroyed.
func (w *writer) lost() string {
	switch {
	case w.res.FilesLost:
		return "The sandbox is gone, with all variables and files; the next call begins anew."
	case w.res.StateLost:
		return "All variables are gone; files are still there. Define again what you need."
	}
	return ""
}
