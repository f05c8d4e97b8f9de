package pyodide

import (
	"io"
)

// stdin feeds the input of a run to the host, as far as the code asks for it.
//
// Its goroutine is the one that nobody can wait for: it may be inside a Read of the caller's that
// does not return. It ends when that does, and touches nothing but the reader and the pipe of the
// host.
type stdin struct{ wants chan int }

func newStdin(h *host, id uint32, r io.Reader) *stdin {
	in := &stdin{wants: make(chan int, 1)}
	go func() {
		for n := range in.wants {
			buf := make([]byte, min(max(n, 1), chunkLen))
			got, err := 0, error(nil)
			for got == 0 && err == nil {
				got, err = r.Read(buf)
			}
			h.send(toStdin, id, buf[:got]) //nolint:errcheck // a host that is gone needs no input
			if err != nil && got > 0 {
				// The next wish is answered by the end.
				r = eof{}
			}
		}
	}()
	return in
}

// want asks for up to n bytes. The host asks again only after it has got some, so that one place is
// enough.
func (in *stdin) want(n int) {
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
