package pyodide

import (
	"errors"
	"fmt"

	"github.com/execbroker/execbroker/internal/wire"
)

// The frames between this program and the host program in Deno are those of package wire, of which
// host/wire.mjs has what the host needs. A stream is a run or a call. They differ from those of a
// runner in what follows:
//
//   - A nonce stands in front of each frame from the host. It is random for each process, comes with
//     the first frame, and only the trusted thread of the host knows it, so that no other writer to
//     its standard output can forge a frame.
//   - Hello says what to start, and the call begin, which is the first one, for which session.
//   - The credit of this program is for all streams together, and a frame costs frameCost more than
//     its payload has bytes. That of the host is for standard input: as much as it asks for.
//   - Open from the host says that the code is about to be passed to the interpreter, Stop that the
//     wall time is over and the code was told so, and Fail that it can only be stopped by killing
//     the process. They come from the trusted thread.
//   - Entries are the files that the code has changed. With End, the code has ended. From then on,
//     and in calls, they are changes for the spool, one in a frame, and Contents are those of the
//     entry before them.
//
// A process that breaks the rules is killed.
const (
	nonceLen  = 16
	maxCode   = 64 << 20
	frameCost = 64
	chunkLen  = 256 << 10
	// maxEnd bounds what a run or call says at its end, and the names of changed files.
	maxEnd = 16 << 20
)

// cost returns how much a frame counts in the window.
func cost(f wire.Frame) int { return len(f.Payload) + frameCost }

// last reports whether a frame is the last one of its stream.
func last(f wire.Frame) bool {
	return (f.Type == wire.Done || f.Type == wire.Fail) && f.Flags == 0
}

// errFrame says that the host, or something that can write to its output, breaks the protocol.
var errFrame = errors.New("a frame that breaks the protocol")

// parseMap decodes a payload.
func parseMap(payload []byte) (wire.Map, error) {
	m, err := wire.ParseMap(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return m, nil
}
