package executor

import (
	"net"
	"time"
)

// Conn is a stream of bytes to a server in a sandbox, from Session.Dial. One goroutine may read and
// one may write at a time; the other methods are safe for concurrent use. Close ends it at once,
// and does not wait for what was written to arrive.
type Conn interface {
	net.Conn
	CloseWrite() error // tells the server that nothing follows; Read goes on
}

// The bounds of forwards, the same on every backend. A connection that reaches one of the last two
// is closed.
const (
	MaxForwards     = 64        // connections that one holder of a session has open at a time; a further one is ErrExhausted
	MaxForwardBytes = 256 << 20 // of one connection, both directions together
	MaxForwardTime  = time.Hour // of one connection
)

// maxPort is the highest port of TCP.
const maxPort = 1<<16 - 1

// CheckPort reports, as ErrInvalid, that port is not one of TCP, 1 to 65535.
func CheckPort(port int) error {
	var bad mistakes
	if port < 1 || port > maxPort {
		bad.add("port %d: want 1 to %d", port, maxPort)
	}
	return bad.err("dial")
}
