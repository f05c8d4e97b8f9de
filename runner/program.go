package runner

import (
	"bytes"
	"compress/zlib"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
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
var supervisor = []string{"protocol.py", "parts.py", "system.py", "peers.py", "runs.py", "processes.py", "terminals.py", "sockets.py", "interpreters.py", "supervisor.py"}

// working lists what of the supervisor does nothing before it is set up. A machine has not got it
// in its file, but as another part, which need not be compiled in each.
var working = []string{"runs.py", "processes.py", "terminals.py", "sockets.py", "interpreters.py"}

// others lists the parts that the supervisor gets when it is set up, by name, with their files. It
// loads them when it needs them, most in other processes.
var others = []struct {
	name  string
	files []string
}{
	{"setup.py", []string{"account.py", "setup.py"}}, {"ports.py", []string{"ports.py"}}, {"files.py", []string{"files.py"}},
	{"interpreter.py", []string{"linger.py", "interpreter.py"}}, {"commands.py", []string{"commands.py"}}, {"helper.py", []string{"helper.py"}},
	{"javascript.py", []string{"javascript.py"}}, {"suspend.py", []string{"suspend.py"}},
}

// bootstrap reads the supervisor from standard input, which is also the first connection: its
// source and, behind four bytes with its length, what an earlier sandbox of the same kind has
// compiled of it. What another version of Python has compiled is not used.
//
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
def take(n):
    b = []
    while n:
        d = os.read(0, min(n, 65536))
        if not d:
            sys.exit("execbroker: the connection ended before the runner had arrived")
        b.append(d)
        n -= len(d)
    return b"".join(b)
import _frozen_importlib_external, marshal, zlib
p, c, m = take(int(sys.argv[1])), take(int.from_bytes(take(4), "big")), _frozen_importlib_external.MAGIC_NUMBER
if c.startswith(m):
    p, c = {}, marshal.loads(zlib.decompress(c[len(m):]))
else:
    p = dict([zlib.decompress(p).decode().split("\0")[:2]])
    c = compile(p["runner.py"], "<execbroker runner.py>", "exec")
exec(c, {"PARTS": p, "CODE": c, "__name__": "runner", "__builtins__": dict(vars(builtins))})
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

// program returns the source of the supervisor, compressed. It is small, because it is sent ahead
// of every sandbox.
var program = sync.OnceValue(func() []byte { return pack(joined("runner.py", supervisor)) })

// parts returns the sources of the other parts, compressed, and guestParts those of a machine.
var (
	parts      = sync.OnceValue(func() []byte { return otherParts() })
	guestParts = sync.OnceValue(func() []byte { return otherParts(joined("working.py", working)) })
)

func otherParts(all ...part) []byte {
	all = append(all, part{"cell.py", shipped(cell.Program)}, part{"notebook.py", shipped(cell.Notebook)}, part{"runner.cjs", javascript()})
	for _, p := range others {
		all = append(all, joined(p.name, p.files))
	}
	return pack(all...)
}

// part is a piece of the program by its name.
type part struct{ name, source string }

// joined makes a part of files.
func joined(name string, files []string) part {
	var all strings.Builder
	for _, file := range files {
		all.WriteString(source(file))
	}
	return part{name, all.String()}
}

// ahead returns what is sent to a supervisor before the protocol begins. c may be nil.
func ahead(c *compiled) []byte {
	var code []byte
	if c != nil {
		code = c.runner
	}
	return slices.Concat(program(), binary.BigEndian.AppendUint32(nil, uint32(len(code))), code)
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
	return string(text)
}

// javascript returns the program of interpreters of JavaScript. It is one script, which has the
// functions of cell.mjs and values.mjs as its own.
func javascript() string {
	modules := strings.ReplaceAll(cell.JavaScript+wire.JavaScript, "\nexport ", "\n")
	return wholeComment.ReplaceAllString(source("runner.cjs")+modules, "")
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
