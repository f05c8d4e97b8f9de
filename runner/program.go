package runner

import (
	"bytes"
	"compress/zlib"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/internal/cell"
	"github.com/execbroker/execbroker/internal/wire"
)

//go:embed internal/program
var sources embed.FS

// supervisor lists the files that make the program of the supervisor. They are joined, so that it
// is one program to compile.
var supervisor = []string{"protocol.py", "system.py", "peers.py", "runs.py", "processes.py", "interpreters.py", "helper.py", "suspend.py", "supervisor.py"}

// programs lists what the supervisor compiles later, in other processes, by name.
var programs = []string{"interpreter.py", "files.py", "runner.cjs"}

// bootstrap reads the rest of the program from standard input, which is also the first connection.
// Its version check comes before anything that an old Python could not compile. It closes what
// whoever started it has inherited from others. The program has built-in names of its own, because
// interpreters go on with it and their code may remove the common ones.
const bootstrap = `import builtins, os, sys
if sys.version_info < (3, 9):
    sys.exit("execbroker: python3 is version %d.%d here, the runner needs 3.9 or later" % sys.version_info[:2])
for n in os.listdir("/proc/self/fd"):
    try:
        int(n) < 3 or os.close(int(n))
    except OSError:
        pass
n, b = int(sys.argv[1]), []
while n:
    d = os.read(0, min(n, 65536))
    if not d:
        sys.exit("execbroker: the connection ended before the runner had arrived")
    b.append(d)
    n -= len(d)
import zlib
p = zlib.decompress(b"".join(b)).decode().split("\0")
p = dict(zip(p[::2], p[1::2]))
c = b""
if sys.argv[2:]:
    import _frozen_importlib_external, marshal
    m = _frozen_importlib_external.MAGIC_NUMBER
    if sys.argv[2] == "-":
        sys.stdout.buffer.write(m + marshal.dumps(compile(p["runner.py"], "<execbroker runner.py>", "exec")))
        sys.exit()
    with open(sys.argv[2], "rb") as f:
        c = f.read()
    c = marshal.loads(c[len(m):]) if c.startswith(m) else b""
exec(c or compile(p["runner.py"], "<execbroker runner.py>", "exec"), {"PARTS": p, "__name__": "runner", "__builtins__": dict(vars(builtins))})
`

// bridge hands its standard input and output to the supervisor and waits until the supervisor lets
// go of them. If there is no supervisor, it says so in its place: exit codes do not get through to
// whoever has the streams alone.
const bridge = `import os, socket, sys
s = socket.socket(socket.AF_UNIX)
a = sys.argv[1]
try:
    s.connect("\0" + a[1:] if a[:1] == "@" else a)
    socket.send_fds(s, [b"x"], [0, 1])
except OSError as e:
    if isinstance(e, (ConnectionRefusedError, FileNotFoundError)):
        os.write(1, bytes.fromhex(sys.argv[2]))
    sys.exit("execbroker: %s: %s" % (a, e.strerror))
os.closerange(0, 2)
s.recv(1)
`

// program returns what Start sends ahead: the sources, compressed.
var program = sync.OnceValue(func() []byte { return pack(append([]part{runner(supervisor)}, later()...)...) })

// part is a piece of the program by its name.
type part struct{ name, source string }

// runner is the part that is compiled first: the supervisor of some files.
func runner(files []string) part {
	var all strings.Builder
	for _, name := range files {
		all.WriteString(source(name))
	}
	return part{"runner.py", all.String()}
}

// later are the parts that the supervisor compiles later.
func later() []part {
	parts := []part{{"cell.py", shipped(cell.Program)}}
	for _, name := range programs {
		parts = append(parts, part{name, source(name)})
	}
	return parts
}

// pack compresses parts.
func pack(parts ...part) []byte {
	var b bytes.Buffer
	z, _ := zlib.NewWriterLevel(&b, zlib.BestCompression) // the level is valid, and a Buffer takes everything
	for _, p := range parts {
		fmt.Fprintf(z, "%s\x00%s\x00", p.name, p.source)
	}
	z.Close()
	return b.Bytes()
}

// source returns a file of the program, as it is sent.
func source(name string) string {
	text, err := sources.ReadFile(path.Join("internal/program", name))
	if err != nil {
		panic(err) // it is embedded
	}
	if strings.HasSuffix(name, ".py") {
		return shipped(string(text))
	}
	return wholeComment.ReplaceAllString(string(text), "")
}

var (
	wholeComment = regexp.MustCompile(`(?m)^[ \t]*//.*$`)              // of JavaScript
	endComment   = regexp.MustCompile(`(?m)(?:^[ \t]*|  )# [^"'\n]*$`) // of Python; no string ends behind it
)

// shipped leaves out of Python what only its readers need: comments, and the words that tell of a
// module, class or function. Lines keep their numbers.
func shipped(python string) string {
	lines := strings.Split(python, "\n")
	head, words := true, false // the line before begins a block; the line before is within the words that tell of one
	for i, line := range lines {
		switch text := strings.TrimSpace(line); {
		case words:
			lines[i], words = "", !strings.HasSuffix(text, `"""`)
		case head && strings.HasPrefix(text, `"""`):
			lines[i] = line[:strings.IndexByte(line, '"')] + `""`
			words = len(text) < 6 || !strings.HasSuffix(text, `"""`)
			head = false
		case strings.HasPrefix(text, "#"):
			lines[i] = ""
		default:
			head = strings.HasSuffix(text, ":")
		}
	}
	return endComment.ReplaceAllString(strings.Join(lines, "\n"), "")
}

// command returns the command line of the runner. Its standard input and output become the
// connection of the creator, for setUp. What it writes to standard error says why it did not start.
func command(python string) []string {
	// -I and -S: neither variables nor files of the image are to run code with the rights of the
	// supervisor. UTF-8 whatever the locale.
	return []string{python, "-I", "-S", "-X", "utf8", "-c", bootstrap, strconv.Itoa(len(program()))}
}

// Program is the program of the supervisor, which Open sends to each runner.
func Program() []byte { return program() }

// CompileCommand returns a command line that reads Program from its standard input and writes what
// Python makes of it to its standard output. Compiling is a large part of the time in which a
// runner comes up, so a Transport that can trust what it is given back puts that into a file of its
// sandboxes that only root can write to, and appends the name of the file to Start.Command. What
// another version of Python has made is ignored. It must be made where no user code has run.
func CompileCommand(python string) []string { return append(command(python), "-") }

// noSupervisor is what a bridge says that has found none.
var noSupervisor = sync.OnceValue(func() string {
	words := wire.Map{"reason": "ended", "message": "the supervisor of the sandbox has ended"}
	return hex.EncodeToString(wire.Frame{Type: wire.Bye, Payload: wire.AppendValue(nil, words)}.Append(nil))
})

// bridgeCommand returns the command line of a process in the same sandbox whose standard input and
// output become the connection of a further holder, for join. It has to run as the user of the
// supervisor.
func bridgeCommand(python, socket string) []string {
	return []string{python, "-I", "-S", "-c", bridge, socket, noSupervisor()}
}
