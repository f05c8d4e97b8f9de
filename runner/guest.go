package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"
)

// guestBootstrap is bootstrap for a program that is a file of the sandbox.
const guestBootstrap = `import builtins, os, sys
if sys.version_info < (3, 9):
    sys.exit("execbroker: python3 is version %d.%d here, the runner needs 3.9 or later" % sys.version_info[:2])
if os.geteuid():
    sys.stderr.write("execbroker: the runner is not root here\n")
    sys.exit(77)
import zlib
try:
    f = open(sys.argv[1], "rb")
except FileNotFoundError:
    sys.stderr.write("execbroker: no runner at %s\n" % sys.argv[1])
    sys.exit(78)
with f:
    p = zlib.decompress(f.read()).decode().split("\0")
p = dict(zip(p[::2], p[1::2]))
c = compile(p["runner.py"], "<execbroker runner.py>", "exec")
exec(c, {"PARTS": p, "CODE": c, "__name__": "runner", "__builtins__": dict(vars(builtins))})
`

// GuestProgram returns the supervisor of a runner that serves HTTP, compressed, as the file that
// GuestCommand names. The other parts of the program are sent when it is set up: what the
// configuration of a machine can hold is bounded, and everybody who lists machines gets it.
var GuestProgram = sync.OnceValue(func() []byte {
	files := []string{}
	for _, name := range supervisor {
		if name == "supervisor.py" { // the last: it calls main
			files = append(files, guest...)
		}
		if !slices.Contains(working, name) {
			files = append(files, name)
		}
	}
	return pack(joined("runner.py", files), part{name: "http"})
})

// guest lists what the supervisor of a machine has in addition.
var guest = []string{"http.py", "guest.py"}

// ExitNoProgram is the exit code of a runner whose program GuestCommand has not found where it
// looked.
const ExitNoProgram = 78 // in guestBootstrap, too

// ExitNotRoot is the exit code of a runner that GuestCommand has started as another user than root:
// the image has a USER.
const ExitNotRoot = 77 // in guestBootstrap, too

// GuestCommand returns the command line of the runner in a machine that is a sandbox as a whole. It
// has to run as root with all its rights. program is the file of GuestProgram, which is removed
// when it was read. secret is that of Endpoint: the command line has its digest, so that who reads
// the configuration of the machine, or is in it, cannot speak to the runner. It listens on a port
// of all addresses until it was set up and has then ended by its TTL, or was not set up within
// boot: then nobody will, because who has started the machine has died or given up.
func GuestCommand(python, program, secret string, port int, boot time.Duration) []string {
	digest := sha256.Sum256([]byte(secret))
	return []string{
		python, "-I", "-S", "-X", "utf8", "-c", guestBootstrap, program, hex.EncodeToString(digest[:]), strconv.Itoa(port),
		strconv.FormatFloat(boot.Seconds(), 'f', 3, 64),
	}
}

// Guest is what a machine does beside Config.
type Guest struct {
	// Network is "none", a namespace without a way out for all but the runner's own sockets, or
	// "full". What cannot be enforced is refused with ErrUnsupported.
	Network string
	// Hide lists directories that user code must not see. They need not exist.
	Hide []string
}
