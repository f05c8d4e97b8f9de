package pyodide

import (
	"io"

	"github.com/execbroker/execbroker/internal/wire"
)

// stdin sends the input of a run to the host, as far as the code asks for it.
//
// Nobody waits for its goroutine, because it may be inside a Read of the caller's reader that does
// not return. It ends when that Read returns, and uses only the reader and the pipe of the host.
type stdin struct{ wants chan uint32 }

func newStdin(h *host, id uint32, r io.Reader) *stdin {
	in := &stdin{wants: make(chan uint32, 1)}
	go func() {
		for n := range in.wants {
			buf := make([]byte, min(max(n, 1), chunkLen))
			got, err := 0, error(nil)
			for got == 0 && err == nil {
				got, err = r.Read(buf)
			}
			f := wire.Frame{Type: wire.Data, Stream: id, Payload: buf[:got]}
			if got == 0 {
				f.Flags = wire.End
			}
			h.send(f) //nolint:errcheck // a dead host needs no input
			if err != nil && got > 0 {
				// The next request is answered with the end of the input.
				r = eof{}
			}
		}
	}()
	return in
}

// want requests up to n bytes. The host requests more only after it has received some, so a channel
// of size one is enough.
func (in *stdin) want(n uint32) {
	select {
	case in.wants <- n:
	default:
	}
}

func (in *stdin) close() {
	if in != nil {
		close(in.wants)
	}
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
