package executor

import (
	"io"
	"time"
)

// Language names a programming language. Adapters may define more than those below.
type Language string

// The languages that the contract defines.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"

	// TypeScript is JavaScript with types, which are not checked. With FeatureTypeScript the
	// interpreters of JavaScript run both languages, and cells of one can use what cells of the
	// other have declared. Without that feature, TypeScript is an ordinary language that a backend
	// may have.
	TypeScript Language = "typescript"
)

// Request is one execution. Exactly one of Code and Command is set. To run empty code, set Language
// and leave Command nil.
type Request struct {
	// ID names the run within its session, in events, in logs and when a client resumes a stream: 1
	// to 64 of [A-Za-z0-9._-], beginning with a letter or digit. If it is empty, one is generated.
	// An ID can be used only once.
	ID string

	// Code is source text for the interpreter of Language (empty: the session's first) and Context
	// (see Interpreter). It must be UTF-8; the interpreter judges everything else. Context has the
	// form of ID.
	Language Language
	Context  string
	Code     string

	// Command is an argument vector. It runs without a shell, in a process outside the
	// interpreters. It requires FeatureCommand, which includes Stdin, Env, Dir, Artifacts and exit
	// codes.
	Command []string

	// Stdin requires FeatureStdin. Nil means empty. Run never waits for a Read after the code has
	// ended, so a Read may still be in progress when Run returns: use a reader for one run only. A
	// backend may read ahead of the code: see InputCounter.
	Stdin io.Reader

	// Terminal gives a Command a terminal as its standard input, output and error, and as its
	// controlling terminal. It requires FeaturePTY. The command is the leader of a new session.
	// What the terminal shows, including the echo of what is typed, arrives as EventStdout. Stdin
	// is what is typed. Control characters go through the terminal: "\x03" interrupts the
	// foreground process, "\x04" ends a line or the input. The end of Stdin leaves the terminal
	// open, and input waits until the terminal accepts it. TERM is xterm-256color unless Env sets
	// it. A command that is stopped gets SIGHUP. Nil means pipes.
	Terminal *Terminal

	Env map[string]string // added to the session's; requires FeatureEnv
	Dir string            // absolute, or relative to Workdir and below it; requires FeatureDir. In a running interpreter it holds for this run only

	// Linger is how long the run waits, after the last statement of Code, for what the code has
	// started: timers, tasks, pending input and output, threads, workers and child processes. Nil
	// means until all of that has ended, within Limits. Zero means not at all. Result.LeftRunning
	// names what the run never waits for, and what still runs when the wait is over. If the wall
	// time ends the wait, what the run waited for is stopped too. Without FeatureLinger the backend
	// decides whether runs wait, and a value above zero is refused. It is not for Command.
	Linger *time.Duration

	// Limits of this run. Zero fields mean those of SessionInfo.Run. More than SessionInfo.MaxRun
	// is ErrInvalid.
	Limits RunLimits

	// Artifacts requests the files that the run creates or changes. It requires FeatureArtifacts.
	Artifacts *ArtifactRequest

	// Repeatable says that running the code twice does no harm, so that a conversation that
	// escalates may run it again on the bigger backend (see package executor/sessions). The
	// application says so, never the code or who wrote it. Backends ignore it.
	Repeatable bool

	// Keep is how many bytes of stdout, and as many of stderr, the Result keeps: half from the
	// beginning and half from the end. Zero means DefaultKeep, a negative number means none. Events
	// are complete in any case.
	Keep int
}

// ArtifactRequest selects files under Workdir that a run creates or changes.
type ArtifactRequest struct {
	Globs    []string `json:"globs,omitempty"`     // as in path.Match, relative to Workdir or with an absolute name of it in front, "**" for any depth; empty: all
	MaxFiles int      `json:"max_files,omitempty"` // default 100
	MaxBytes int64    `json:"max_bytes,omitempty"` // of all contents together; default DefaultArtifactBytes, 32 MiB
	Contents bool     `json:"contents,omitempty"`  // fill Artifact.Data
}

// InputCounter is a Request.Stdin that is told how much of its input the code has read. A terminal
// uses it to give the rest to the next reader.
type InputCounter interface {
	io.Reader
	// Taken is called at most once, before Run returns, with the number of bytes that the code has
	// read. Bytes in buffers of the code count as read. Taken is not called by backends that read
	// only what the code asks for, nor after a run whose interpreter is gone, nor if the number is
	// not known. In these cases everything that was read from Stdin counts as read by the code. The
	// number comes from the sandbox and may be anything from 0.
	Taken(n int64)
}
