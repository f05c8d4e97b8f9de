package executor

import (
	"io"
	"time"
)

// Language names an interpreter. Adapters may define more.
type Language string

// The languages of the contract.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"

	// TypeScript is JavaScript with types, which are not checked. With FeatureTypeScript the
	// interpreters of JavaScript run both, so that cells of one use what cells of the other have
	// declared. Without, it is a language like any other, if it is there at all.
	TypeScript Language = "typescript"
)

// Request is one execution. Exactly one of Code and Command is set; empty code is Code with
// Language set and Command nil.
type Request struct {
	// ID names the run within its session, in events, logs and streams that are resumed: 1 to 64 of
	// [A-Za-z0-9._-], beginning with a letter or digit. Empty: one is made. An ID is used once.
	ID string

	// Code is source text for the interpreter of Language (empty: the session's first) and Context
	// (see Interpreter). It is UTF-8; all else is the interpreter's to judge. Context has the form
	// of ID.
	Language Language
	Context  string
	Code     string

	// Command is an argument vector, run without a shell beside the interpreters. It requires
	// FeatureCommand, which includes Stdin, Env, Dir, Artifacts and exit codes.
	Command []string

	// Stdin requires FeatureStdin; nil means empty. Run never waits for a Read after the code has
	// ended, so one may still be going on when Run returns: a reader is for one run. A backend may
	// read ahead of the code: see InputCounter.
	Stdin io.Reader

	// Terminal gives a Command a terminal as its standard input, output and error, and as its
	// controlling terminal. It requires FeaturePTY. The command leads a session of its own. What
	// the terminal shows, with the echo of what is typed, is EventStdout. Stdin is what is typed:
	// control characters go through the terminal, "\x03" interrupts what runs in its foreground and
	// "\x04" ends a line or the input. The end of Stdin leaves the terminal open, and what a
	// terminal does not take waits. TERM is xterm-256color unless Env says otherwise. A command
	// that is stopped hears SIGHUP. Nil: pipes.
	Terminal *Terminal

	Env map[string]string // added to the session's; requires FeatureEnv
	Dir string            // absolute, or below Workdir; requires FeatureDir. In a living interpreter for this run only

	// Linger is how long the run waits, after the last statement of Code, for what the code has
	// started: timers, tasks, pending input and output, threads, workers and children of the
	// language. Nil: until that has ended, within Limits. Zero: not at all. What it never waits
	// for, and what is left when it no longer waits, is named in Result.LeftRunning; when the wall
	// time ends the wait, what it waited for is stopped as well. Without FeatureLinger the backend
	// decides whether runs wait, and more than zero is refused. Not for Command.
	Linger *time.Duration

	// Limits of this run. Zero fields are those of SessionInfo.Run; asking for more than
	// SessionInfo.MaxRun is ErrInvalid.
	Limits RunLimits

	// Artifacts asks for the files that the run makes. It requires FeatureArtifacts.
	Artifacts *ArtifactRequest

	// Keep is how many bytes of each of stdout and stderr the Result keeps: half from the
	// beginning, half from the end. Zero means DefaultKeep, negative nothing. Events are not cut.
	Keep int
}

// ArtifactRequest selects files under Workdir that a run creates or changes.
type ArtifactRequest struct {
	Globs    []string `json:"globs,omitempty"`     // as in path.Match, relative to Workdir or below it by any of its names, "**" for any depth; empty: all
	MaxFiles int      `json:"max_files,omitempty"` // default 100
	MaxBytes int64    `json:"max_bytes,omitempty"` // of contents, all together; default 32 MiB
	Contents bool     `json:"contents,omitempty"`  // fill Artifact.Data
}

// InputCounter is a Request.Stdin that wants to know what the code has left of it, such as a
// terminal that has to give it to whoever reads next.
type InputCounter interface {
	io.Reader
	// Taken is called at most once, before Run returns, with the number of bytes that the code has
	// taken. Its own buffers count as the code. It is not called by backends that read only what
	// the code asks for, after a run whose interpreter is gone, or if that is not known: then
	// everything that was read counts as taken. The number comes from the sandbox and may be
	// anything from 0.
	Taken(n int64)
}
