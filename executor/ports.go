package executor

import (
	"net"
	"time"
)

// Conn is a stream of bytes to a server in a sandbox, from Session.Dial. One goroutine may read and
// one may write at a time; the other methods are safe for concurrent use. Close closes the
// connection at once, without waiting until written data has arrived.
type Conn interface {
	net.Conn
	CloseWrite() error // tells the server that no data follows; Read still works
}

// The limits of Dial, the same on every backend. A connection that reaches one of the last two is
// closed.
const (
	MaxForwards     = 64        // open connections of one holder of a session; one more is ErrExhausted
	MaxForwardBytes = 256 << 20 // bytes of one connection, both directions together
	MaxForwardTime  = time.Hour // life of one connection
)

// maxPort is the highest port of TCP.
const maxPort = 1<<16 - 1

// CheckPort returns ErrInvalid if port is not a TCP port, 1 to 65535.
func CheckPort(port int) error {
	var bad invalid
	if port < 1 || port > maxPort {
		bad.add("port %d: want 1 to %d", port, maxPort)
	}
	return bad.err("dial")
}
