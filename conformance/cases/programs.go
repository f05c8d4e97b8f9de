package cases

import (
	"embed"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

//go:embed programs
var programFiles embed.FS

// Source returns the programs of a language by their names: see conformance.Python.
func Source(l executor.Language) map[string]string { return load(string(l)) }

// load reads the programs of a language, and the commands, which are the same for each.
func load(language string) map[string]string {
	source := map[string]string{}
	for _, dir := range []string{"command", language} {
		files, err := programFiles.ReadDir(path.Join("programs", dir))
		if err != nil {
			panic(err) // the embedded files are there, or the package does not compile
		}
		for _, f := range files {
			text, err := programFiles.ReadFile(path.Join("programs", dir, f.Name()))
			if err != nil {
				panic(err)
			}
			source[strings.TrimSuffix(f.Name(), path.Ext(f.Name()))] = string(text)
		}
	}
	return source
}

// command returns a request for a program that is a command.
func (t *T) command(name string, args ...any) executor.Request {
	var argv []string
	if err := json.Unmarshal([]byte(t.Source(t.Language(), name, args...)), &argv); err != nil {
		t.Abort("program %q is not a JSON array of strings: %v", name, err)
	}
	return executor.Request{Command: argv}
}

// Program says what a program must do.
type Program struct{ Name, Doc string }

// Programs lists the programs: see conformance.ProgramNames.
func Programs() []Program { return slices.Clone(programs) }

var programs = []Program{
	// Output.
	{"print", "prints {{text}}"},
	{"print-err", "writes the line {{text}} to stderr"},
	{"alternate", `writes the lines "out 1" to "out 5" to stdout and "err 1" to "err 5" to stderr, alternating, each flushed`},
	{"write", "writes {{text}} to stdout without the end of a line; where output goes by lines only, as a line"},
	{"write-bytes", `writes the bytes that {{chunks}} has in hexadecimal to stdout, each of its blank-separated chunks on its own and followed by the line "x" on stderr; where output is text only, prints "text only" instead`},
	{"repeat", "prints {{text}} as often as the number {{count}} says, in one line"},
	{"lines", `prints "line 1", "line 2", ... up to the number {{count}}`},
	{"lines-spin", `prints "line 1" to "line N" for the number {{count}}, and loops for ever in code of the language`},
	{"lines-die", `prints "line 1" to "line N" for the number {{count}}, and ends its interpreter like "die"`},
	{"flood", `prints lines of 999 times "x" for ever`},
	{"late", `leaves something running that prints "late" after the number {{ms}} of milliseconds, if need be while a later run awaits; prints "left" and ends at once`},
	{"linger", `leaves something running that prints "late" after the number {{ms}} of milliseconds and that a run waits for: a thread, timer or task; prints "left"`},
	{"linger-task", `leaves a task or promise running that prints "late" after the number {{ms}} of milliseconds, awaits something shorter at its top level, prints "left"`},
	{"linger-error", `leaves a thread, timer or task running that fails with the message "late error" after the number {{ms}} of milliseconds; prints "left"`},
	{"linger-ticker", `leaves a thread, task or chain of timers running that a run waits for, and that appends "x" to the file {{name}}, where there are files, every 10 ms for ever; prints "left"`},
	{"linger-kinds", `starts something of every kind that a run waits for, which says what it is in a line, {{ms}} milliseconds later where it can: in Python "work" and "callback" of an executor, and a "child"; in JavaScript "file", "zlib", "child", "worker", "stdin" and "socket"; and some that no run waits for`},
	{"pause", `prints "begin", awaits the number {{ms}} of milliseconds at its top level so that what runs beside it goes on, prints "end"`},
	{"nap", `prints "begin", blocks for the number {{ms}} of milliseconds, prints "end"`},
	{"verbatim", "prints two lines of quotes, braces, dollars, percents, backslashes and non-ASCII characters; the case has the text"},

	// Code that does not end.
	{"spin", "prints {{text}} and loops for ever in code of the language"},
	{"sleep", "prints {{text}} and blocks for an hour in the language's sleep"},
	{"await-forever", "prints {{text}} and awaits for an hour at its top level"},
	{"regex", "prints {{text}} and matches a regular expression that backtracks for ever"},
	{"native-loop", "prints {{text}} and loops for ever in code of the language's library that does not look for interrupts"},
	{"swallow", "prints {{text}} and loops for ever, catching every exception that can be caught, interrupts included"},
	{"tick-file", `prints "ready", then appends "x" to the file {{name}} every 10 ms for ever`},

	// State.
	{"remember", "keeps {{value}} in a variable, and a function that returns it; it may run several times"},
	{"recall", `prints what the function of "remember" returns, or "absent" if there is none`},
	{"count", "adds 1 to a variable that is 0 at first, and prints it"},

	// Checkpoints. The last one is for Python only.
	{"carry", "makes variables of every kind that a checkpoint carries, with objects that several share and with cycles"},
	{"carried", "prints what they hold, and whether what they share is shared; the words are the same after a checkpoint"},
	{"carry-not", "makes the variable closure, and in Python also stream, lock and generator, which no checkpoint can carry"},
	{"carry-hang", "makes a variable whose pickling does not end"},

	// Notebooks, Python only.
	{"indented", `is indented as a whole; prints a text in triple quotes whose only line is "in a string" behind four blanks, and "indented"`},
	{"not-notebook", `is plain Python; prints a text in triple quotes with the lines "%time" and "!echo", and the value of "5 %3", with the percent sign before the digit`},
	{"magic", `prints {{text}} under the cell magic %%capture, into the variable captured`},
	{"after-magic", "prints what that variable holds of stdout"},
	{"magic-unknown", "has the line magic no_such_magic, of which there is none"},
	{"shell-line", "prints {{text}} by a command of the shell, in a line that begins with an exclamation mark"},

	// Values and displays.
	{"value", "ends with an expression whose value is the number 42"},
	{"value-none", "ends with an assignment, which has no value"},
	{"value-json", `ends with the value {"name": "渐", "list": [1, 2.5, true, null]} in the language's own containers`},
	{"value-rich", `ends with a value that shows itself as text/plain "rich", text/html "<b>rich</b>" and image/png of the 8 bytes that begin a PNG file and "rich". In JavaScript by a method Symbol.for("Jupyter.display") that returns a MIME bundle, with images in base64`},
	{"displays", `prints "a", displays text/html "<i>1</i>", prints "b", displays text/html "<i>2</i>", and ends with the value 3. Displaying is a call of the global function display(value)`},
	{"display-then-raise", `displays the text "kept" and raises`},
	{"display-big", `displays a text of as many "x" as the number {{count}} says, and prints "end"`},
	{"display-flood", "displays the number 1 for ever"},
	{"display-odd-types", `displays "odd" under each of the media types "Text/HTML", "text/html; charset=utf-8", "", "no-slash", "a/" and 10,000 times "b", "text/plain\ntext/html" and "text/x-fine", ignores that some are refused, and prints "end"`},
	{"figure", `Python only: writes a package matplotlib into the directory that it starts in, whose figures save themselves as the 8 bytes that begin a PNG file and "figure N"; makes figure 1, calls pyplot.show(), prints "shown", makes figures 2 and 3, prints "drawn"`},

	// Exceptions and exit codes. "Raises" means ValueError in Python and RangeError in JavaScript.
	{"raise", `prints "before" on line 2 and raises with the message {{message}} on line 3`},
	{"raise-deep", `raises with the message "deep" on line 2, in a function inner that a function outer calls`},
	{"raise-in-library", "on line 2, calls a function of the standard library that raises: the parsing of bad JSON"},
	{"raise-chained", `Python only: raises RuntimeError("outer") on line 4 from KeyError("inner")`},
	{"raise-custom", "raises an error of a class OddError that the program defines, with the message {{message}}"},
	{"raise-big", `raises with a message of as many "x" as the number {{count}} says`},
	{"syntax-error", `has a statement that prints "never" on line 1 and a syntax error on line 2`},
	{"recurse", "calls itself without end: RecursionError in Python, RangeError in JavaScript"},
	{"exit", `prints "before", ends with the exit code that is the number {{code}}, and would print "after"`},
	{"exit-text", `Python only: calls sys.exit with the text "farewell"`},
	{"die", `prints "before" and ends its interpreter as hard as it can, by abort(3); where it cannot, raises an Error "cannot die"`},

	// Standard input.
	{"ask", `prints "name?", reads a line of standard input and prints "hello " and it without its end, or "hello nobody" if there is none`},
	{"echo", "copies standard input to standard output, byte by byte the same"},

	// The language.
	{"program", "Python only: prints what names it as a program: sys.argv[0], the absolute path that __file__ is, and sys.stdout.mode"},
	{"hook", `Python only: sets a sys.excepthook that prints "hook", the name of the type and the message of an exception, and raises ValueError("boom")`},
	{"at-exit", `Python only: prints "registered", after registering by atexit a function that prints much and then writes "bye" into the file {{name}}`},
	{"user", `Python only: prints the name of the user by getpass, by the variable USER, and, where it can start programs, by whoami`},
	{"zones", `Python only: prints what is 2026-07-01T12:00:00 UTC in the time zones Europe/Berlin and Asia/Kolkata in ISO format, by zoneinfo`},
	{"hard-exit", `Python only: writes "kept" into the file {{name}}, prints "before" and ends its process by os._exit with the exit code that is the number {{code}}`},
	{"spawn-define", "Python only: imports multiprocessing, and defines a function square that adds the variable offset, 100, to the square of its argument"},
	{"spawn-use", `Python only: prints "spawn [109]" and "forkserver [109]", by a Pool of multiprocessing that starts its process so, and square`},
	{"main", `Python only: prints "main 42" if __name__ is "__main__" and the module __main__ has the program's variable`},
	{"return", `JavaScript only: declares the constant kept with the value {{text}}, prints "before", returns at its top level in a try whose finally prints "finally", and would print "after"`},
	{"hashbang", "JavaScript only: begins with #!, awaits at its top level and prints {{text}}"},
	{"script", `JavaScript only: a program for Node that prints "object true true true" and "true 2 true" if it is the main module, in the directory that it starts in, with a name, exports and arguments, and a module that it requires finds that as well`},
	{"esm", "JavaScript only: a program for Node with import, import.meta.url and every kind of export that prints {{text}}"},
	{"handlers", `JavaScript only: a program for Node that handles uncaughtException, prints "uncaughtException now" for an error at its top level, then "uncaughtException later" and "goes on"`},
	{"typed", `JavaScript only: TypeScript with an interface, a generic type, an enum, an abstract class, a parameter property, an ambient declaration and the operators as, satisfies and !; prints {{text}}`},
	{"typed-raise", `JavaScript only: TypeScript that raises with the message {{message}} on line 7, in a function that line 10 calls, with types of several lines before`},
	{"typed-syntax-error", `JavaScript only: TypeScript that has a type and prints "never" on line 1, and an error where a type is missing on line 2`},
	{"namespace", `JavaScript only: TypeScript that has a namespace with a variable on line 2, and would print "never" on line 1`},
	{"await", `awaits 10 ms at its top level and prints "awaited"`},

	// Files.
	{"write-file", "writes {{text}} into the file {{name}}, in place of what it held"},
	{"read-file", `prints the text in the file {{name}}, or "absent" if it cannot be read`},
	{"remove-file", "removes the file {{name}}"},
	{"symlink", "makes a symbolic link {{link}} to {{target}}"},
	{"make-files", "makes a directory {{dir}} and in it as many empty files f0000, f0001, ... as the number {{count}} says"},
	{"file-mode", "prints the permission bits of the file {{name}} in octal"},
	{"wait-for-file", `prints "waiting", waits until the file {{name}} has content, for at most 30 s, and prints it`},
	{"make-artifacts", `makes report.txt with the line "report", data/table.csv with the lines "a,b" and "1,2", data/deep/plot.png with the 8 bytes that begin a PNG file and "plot", blob.bin with each of the 256 bytes once; prints "made"`},
	{"make-file-then-raise", `makes partial.txt with the text "partial" and raises`},

	// Surroundings.
	{"getenv", "prints the value of the environment variable {{name}} as JSON, null if it is not set"},
	{"environ", "prints all environment variables as a JSON object"},
	{"cwd", "prints the working directory"},
	{"spoil-alias", `tries to remove, replace and rename the link {{name}}, also by the file {{file}}, and to write to the directory {{above}} that it is in, to rename that and to open it up for writing; prints a line for each that it could do, and "done"`},
	{"surroundings", `prints a JSON object: "offset" (of local time from UTC in seconds), "tz" and "lang" (the variables TZ and LANG), "encoding" (of text files), "home" and "temp" (whether a file can be made in the home and the temporary directory), "home_dir" (the home directory). What the language does not know is left out`},

	// Limits.
	{"allocate", `takes memory and writes to it, 8 MiB at a time, up to the number {{mib}} of MiB; prints "allocated N" with the MiB so far after each, and "done" at the end. It ends as the language does when there is no more`},
	{"fill-disk", `writes files into the working, the home and the temporary directory in turn, 1 MiB at a time, until each is full or the total has reached the number {{mib}} of MiB; prints "wrote N" with the bytes so far after each, removes the files, prints "done"`},
	{"processes", `starts as many processes as the number {{count}} says, which wait, until one cannot be started; prints "started N", ends them`},
	{"burn", "uses a processor for the number {{ms}} of milliseconds and prints processor time divided by wall time"},

	// What a sandbox may offer.
	{"subprocess", `prints "subprocess ok" if it can start a program and read its output, else "subprocess none"`},
	{"threads", `prints "threads ok" if it can start a thread that does something, else "threads none"`},
	{"leave-dead-ticker", `Python only: leaves a process running whose first thread has ended, so that it shows as dead, and whose other one appends "x" to the file {{name}} every 10 ms, and prints "left"; "none" where code has no way to do that`},
	{"leave-ticker", `leaves a thread, timer or task running that appends "x" to the file {{name}} every 10 ms, if need be while a later run awaits, and prints "left"`},
	{"serve", `leaves a server running, for which no run waits, at a free port of the address {{address}}, and prints the port. Each connection begins with a line that says what the server does: "echo" sends back what comes until its end, and then "end"; "flood" sends without an end; "half" sends "half", ends that and goes on reading; "reset" resets the connection; "mute" reads and sends nothing`},
	{"listening", `prints the ports of TCP at which something listens in the network of the sandbox, separated by blanks`},
	{"connect", `sends the text {{token}} to each of the blank-separated addresses of {{tcp}} by every means that it has, and in the name that a DNS query asks for to each of {{udp}}; prints "reached ADDRESS" for each that answers, and "done"`},
	{"package-name", "is not code, but the requirement of a small package that the backend can install"},
	{"package-import", `prints "present" if that package can be imported, else "absent"`},

	// Hostile code.
	{"forge", "prints nine lines that look like frames of the protocols that sandboxes speak; the case has the text"},
	{"scribble", `writes what looks like frames to the file descriptors 1 to 32, ignores errors, and prints "end"`},
	{"close-descriptors", "closes the file descriptors 0 to 255"},
	{"sabotage", "replaces or removes what the code around it may rely on: built-in functions, modules, streams"},

	// Commands: not code, but a JSON array with the argument vector of Request.Command.
	{"command-echo", `writes the line "out" to stdout and "err" to stderr, and exits with {{code}}`},
	{"command-args", "prints its three arguments {{a}}, {{b}} and {{c}}, each in a line"},
	{"command-cat", "copies standard input to standard output"},
	{"command-env", "writes the value of the environment variable CONFORMANCE to stdout"},
	{"command-pwd", "prints its working directory"},
	{"command-sleep", `prints "ready" and sleeps for an hour in a child process`},
	{"command-background", `leaves a child in its process group that appends "x" to the file {{name}} every 20 ms, prints "left", then executes the words {{then}}: "true" or "sleep 3600"`},
	{"command-sockets", `makes a socket and a pair of sockets of every family but UNIX, INET, INET6 and of NETLINK with every protocol but that of routes, and prints "made" and a word for each that it got`},
	{"command-signal", "kills itself with SIGSEGV"},
	{"command-missing", "names a program that does not exist"},
	{"command-write", "writes {{text}} into the file {{name}}"},
	{"terminal-report", `prints "terminal" with the rows and columns of its controlling terminal, if its standard input, output and error are a terminal and it leads its session`},
	{"terminal-sizes", "prints the rows and columns of its terminal, again whenever they change"},
	{"terminal-interrupt", `prints "ready", waits to be interrupted, prints "interrupted" and exits with 7`},
	{"terminal-deaf", `ignores hang-ups, interrupts and requests to end, prints "ready" and goes on for ever`},
	{"terminal-lines", "prints the numbers from 1 to {{count}}, which is a string"},
	{"command-wait", `prints "waiting", waits until the file {{name}} has content, for at most 30 s, and prints it`},
}
