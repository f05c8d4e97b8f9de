package compare

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Fields is what was observed of a run: by name of a field, its value as text. A field that is
// empty is absent.
//
// The names: "refused" (what the backend lacks; then there is nothing else), "error" (of the
// infrastructure), "status" with its reason, "exit code", "signal", "exception", "stdout",
// "stderr", "errors" (stderr and the exception, as a script has both on stderr), "values" (media
// types, and the text where there is one), "artifacts", "state", "left running" (which explains,
// and is not compared).
type Fields map[string]string

// LeftRunning is the field that is not compared.
const LeftRunning = "left running"

// maxText bounds a field in bytes. Of what is longer there is the beginning, the size and a hash.
const maxText = 4 << 10

// Failed returns the Fields of a run that did not take place, or whose end is not known.
func Failed(err error) Fields {
	var e *executor.Error
	if errors.As(err, &e) && errors.Is(err, executor.ErrUnsupported) {
		return Fields{"refused": strings.Join(slices.Sorted(slices.Values(e.Missing)), ", ")}
	}
	return Fields{"error": Clip(err.Error())}
}

// Describe returns what a program, or a user, sees of a result. Durations and identities differ
// from run to run and are left out.
func Describe(l executor.Language, r *executor.Result) Fields {
	f := Fields{}
	set := func(name, value string) {
		if value != "" {
			f[name] = Clip(value)
		}
	}
	set("status", strings.TrimSpace(string(r.Status)+" "+string(r.Reason)))
	if r.ExitCode != 0 {
		set("exit code", fmt.Sprint(r.ExitCode))
	}
	set("signal", r.Signal)
	errors := string(r.Stderr)
	if e := r.Exception; e != nil {
		set("exception", fmt.Sprintf("%s: %s (line %d)", e.Type, e.Message, e.Line))
		errors = strings.TrimRight(errors, "\n") + "\n" + e.Traceback
	}
	set("stdout", string(r.Stdout))
	set("stderr", withoutFrames(l, string(r.Stderr)))
	set("errors", withoutFrames(l, errors))
	var values []string
	for _, o := range r.Outputs {
		values = append(values, value(o))
	}
	set("values", strings.Join(values, "\n"))
	var made []string
	for _, a := range r.Artifacts {
		size := fmt.Sprintf(" %d bytes", a.Size)
		if !strings.HasPrefix(a.MIME, "text/") { // compressed: the libraries' versions show in the size
			size = ""
		}
		made = append(made, a.Name+" "+a.MIME+size)
	}
	slices.Sort(made)
	set("artifacts", strings.Join(made, "\n"))
	var state []string
	for what, is := range map[string]bool{"lost": r.StateLost, "files lost": r.FilesLost} {
		if is {
			state = append(state, what)
		}
	}
	slices.Sort(state)
	set("state", strings.Join(state, ", "))
	set(LeftRunning, strings.Join(r.LeftRunning, ", "))
	return f
}

// value is the media types of an output, and its plain text.
func value(o executor.Output) string {
	s := strings.Join(slices.Sorted(maps.Keys(o.Data)), " ")
	if o.Main {
		s = "main " + s
	}
	if _, text, ok := o.Data.Best("text/plain"); ok {
		s += " " + string(text)
	}
	return s
}

// frames are the lines of stderr that say where an exception was raised. Which inner frames a
// language names, and how it quotes the source, differs between its versions and with the name of
// the file.
var frames = map[executor.Language][]*regexp.Regexp{
	executor.Python: {
		regexp.MustCompile(`(?m)^Traceback \(most recent call last\):\n(([ \t].*)?\n)*`),
		regexp.MustCompile(`(?m)^[ |]*\+? ?Exception Group Traceback \(most recent call last\):\n`),
		regexp.MustCompile(`(?m)^[ |]+File ".*", line \d+.*\n([ |]* {4}[^|\n]*\n)*`),
	},
	executor.JavaScript: {
		regexp.MustCompile(`(?m)^    at .* \{\n(  .*\n)*\}\n?`), // with what the error has besides
		regexp.MustCompile(`(?m)^    (at|\.\.\. \d+ lines matching) .*\n?`),
		regexp.MustCompile(`(?m)^(Caused by|One of): .*\n?`),
		regexp.MustCompile("(?m)^\\(Use `node --trace-.*\n?"),
		regexp.MustCompile(`(?m)^(<cell \d+>|/.*|file:.*|node:.*):\d+\n((.*\n){0,2}[ \t]*\^+\n\n?)?`),
		regexp.MustCompile(`(?m)^<anonymous_script>:\d+\n(.+\n){0,2}[ \t^]*\n+`),
		regexp.MustCompile(`(?m)^Emitted .* event .*at:\n( +\[\.\.\. lines.*\n)?`),
		regexp.MustCompile(`(?m)^Node\.js v\d.*\n?`),
	},
}

// What differs from run to run: the addresses of objects, the numbers of Node's timers, and how
// long tests took.
var (
	addresses = regexp.MustCompile(`\b0x[0-9a-f]{5,16}\b`)
	counters  = regexp.MustCompile(`((?:_idleStart|Symbol\((?:asyncId|triggerId)\)\]?): |Ran \d+ tests? in )[\d.]+`)
)

// ownNames are what a script and a cell are called.
var ownNames = regexp.MustCompile(`(?:/[^\s'":]*/)?\bcell\.(?:py|m?js)\b|<cell \d+>`)

func withoutFrames(l executor.Language, stderr string) string {
	if l == executor.TypeScript {
		l = executor.JavaScript
	}
	for _, re := range frames[l] {
		stderr = re.ReplaceAllString(stderr, "")
	}
	return strings.TrimSpace(ownNames.ReplaceAllLiteralString(stderr, "<cell>"))
}

// Clip bounds a text from a sandbox, and leaves out what differs from run to run.
func Clip(s string) string {
	s = counters.ReplaceAllString(addresses.ReplaceAllLiteralString(s, "0x…"), "${1}…")
	if len(s) > maxText {
		s = fmt.Sprintf("%s... %d bytes, SHA-256 %x", s[:maxText], len(s), sha256.Sum256([]byte(s)))
	}
	return strings.ToValidUTF8(s, "�")
}
