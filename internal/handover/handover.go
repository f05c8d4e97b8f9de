// Package handover starts runners whose streams come from another process, for adapters whose
// provider keeps what the main process of a sandbox writes, or does not carry what it reads.
//
// The main process of the sandbox begins as the prelude, which waits for an opener: a process that
// the provider starts on request, whose streams are those of a connection. The prelude takes them
// over and becomes the runner. The opener stays for as long as the runner has its standard error,
// because a provider ends the streams of a process with the process.
//
// The prelude takes one opener and no second one. So an opener that a provider starts twice, after
// a lost answer, changes nothing.
package handover

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"
)

// wait is the end of the program of the prelude: it ends if nobody comes.
const wait = `
import array, os, socket, sys
l = socket.socket(socket.AF_UNIX)
l.bind("\0execbroker-start")
l.listen(1)
l.settimeout(int(sys.argv[1]))
while True:
    try:
        c = l.accept()[0]
    except socket.timeout:
        sys.exit(0)
    c.settimeout(10)
    try:
        data, rights, _, _ = c.recvmsg(1, socket.CMSG_SPACE(8))
    except OSError:
        continue
    fds = array.array("i")
    for level, kind, b in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(b[:len(b) - len(b) % fds.itemsize])
    if data == b"x" and len(fds) == 2:
        break
    for fd in fds:
        os.close(fd)
l.close()
c.setblocking(True)
os.dup2(fds[0], 0)
os.dup2(fds[1], 1)
os.dup2(c.fileno(), 2)
os.write(1, b"+")
os.execvp(sys.argv[2], sys.argv[2:])
`

// opener hands its streams to the prelude, which may not be there yet, and passes on what the
// runner writes to standard error.
const opener = `import array, os, socket, sys, time
end = time.monotonic() + 20
while True:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect("\0execbroker-start")
        break
    except OSError as e:
        s.close()
        if time.monotonic() > end:
            sys.exit("execbroker: the prelude does not listen: %s" % e.strerror)
        time.sleep(0.005)
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))])
os.closerange(0, 2)
while True:
    b = s.recv(4096)
    if not b:
        break
    os.write(2, b)
`

// announced becomes another program, and says before that it is there.
const announced = `import os, sys
os.write(1, b"+")
os.execvp(sys.argv[1], sys.argv[1:])
`

// Ready is the first byte of a connection: the prelude has the streams, or the program of
// AnnouncedCommand is there. Then nothing that is sent gets lost.
const Ready = '+'

func script(python, program string) []string { return []string{python, "-I", "-S", "-c", program} }

// PreludeCommand returns the command line of the main process of a sandbox. before is a program in
// Python that does what has to be done first, as root: it takes each of args out of sys.argv, at
// index 1. The process ends after patience if no opener has come by then.
func PreludeCommand(python, before string, args []string, patience time.Duration, runner []string) []string {
	return slices.Concat(script(python, before+wait), args, []string{strconv.Itoa(int(patience.Seconds()))}, runner)
}

// OpenerCommand returns the command line of the opener.
func OpenerCommand(python string) []string { return script(python, opener) }

// AnnouncedCommand returns the command line of a further process that says when it is there.
func AnnouncedCommand(python string, command []string) []string {
	return append(script(python, announced), command...)
}

// NothingCommand returns the command line of a process that ends well at once: that it was started
// says that the sandbox lives.
func NothingCommand(python string) []string { return script(python, "") }

// ErrNotReady says that a connection began with something else than Ready.
var ErrNotReady = errors.New("the connection is not that of the program that was started")

// Await reads Ready. When ctx ends first it closes conn, and the error is the cause.
func Await(ctx context.Context, conn io.ReadCloser) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var first [1]byte
	_, err := io.ReadFull(conn, first[:])
	switch {
	case !stop():
		return context.Cause(ctx)
	case err == nil && first[0] != Ready:
		return ErrNotReady
	}
	return err
}
