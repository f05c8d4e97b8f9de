package modal

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/execbroker/execbroker/internal/remote"
)

const (
	maxPiece   = 256 << 10 // of one message to standard input
	maxUnsent  = 1 << 20
	keepStderr = 4 << 10
	farewell   = 2 * time.Second // for what was written to be sent when a stream is closed
)

// stream is a process in a Sandbox: its standard input and output. The SDK sends what is written
// one request at a time, each with its position, so that a repeated one changes nothing. Such a
// request cannot be ended by who has made it. So Write only takes what it is given. An error of
// sending ends the stream in both directions, because what is not sent has no answer.
type stream struct {
	sb       *sdk.Sandbox // a handle for this stream alone: with it the connection to the Sandbox goes
	p        *sdk.ContainerProcess
	patience time.Duration   // with a router that asks to wait
	life     context.Context // until Close
	end      context.CancelFunc

	mu     sync.Mutex
	change *sync.Cond // of what mu guards
	out    []byte     // written, and not sent
	err    error      // of sending
	closed bool
	said   string        // the end of standard error, when the process has ended
	sent   chan struct{} // closed when nothing is sent any more
}

// newStream returns the streams of a process. sending counts what is being sent.
func newStream(sb *sdk.Sandbox, p *sdk.ContainerProcess, patience time.Duration, sending *sync.WaitGroup) *stream {
	s := &stream{sb: sb, p: p, patience: patience, sent: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	s.change = sync.NewCond(&s.mu)
	sending.Go(s.send)
	return s
}

// send sends what is written until the stream is closed, and then the end of standard input.
func (s *stream) send() {
	defer close(s.sent)
	for {
		s.mu.Lock()
		for len(s.out) == 0 && !s.closed {
			s.change.Wait()
		}
		piece := s.out[:min(len(s.out), maxPiece)]
		s.out = s.out[len(piece):]
		s.change.Broadcast()
		s.mu.Unlock()
		var err error
		if len(piece) > 0 {
			_, err = throttled(s.life, s.patience, func() (int, error) { return s.p.Stdin.Write(piece) })
		} else {
			err = s.p.Stdin.Close() // it is closed, and what reads it ends
		}
		if err != nil || len(piece) == 0 {
			s.mu.Lock()
			s.err = err
			s.change.Broadcast()
			s.mu.Unlock()
			if err != nil {
				_ = s.p.Stdout.Close() // a Read fails with the error above
			}
			return
		}
	}
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return n, net.ErrClosed
		case s.err != nil:
			return n, s.err
		case len(p) == 0:
			return n, nil
		case len(s.out) == maxUnsent:
			s.change.Wait()
			continue
		}
		some := p[:min(len(p), maxUnsent-len(s.out))]
		s.out = append(s.out, some...)
		n, p = n+len(some), p[len(some):]
		s.change.Broadcast()
	}
}

// Read implements io.Reader. The SDK opens the stream anew where it was cut, and fails when that
// does not help. At the end of the process it keeps what that has written to standard error.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.p.Stdout.Read(p)
	if err == nil {
		return n, nil
	}
	s.mu.Lock()
	closed, unsent, known := s.closed, s.err, s.said != ""
	s.mu.Unlock()
	switch {
	case closed:
		err = net.ErrClosed
	case unsent != nil:
		err = unsent
	case errors.Is(err, io.EOF) && !known:
		said := s.readStderr()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.said = said
	}
	return n, err
}

// Close implements io.Closer. What was written is sent, and the process sees the end of its input.
// Close does not wait for that where Modal does not answer.
func (s *stream) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.change.Broadcast()
	s.mu.Unlock()
	if !first {
		return nil
	}
	s.end()
	err := s.p.Stdout.Close()
	select {
	case <-s.sent:
	case <-time.After(farewell):
	}
	return errors.Join(err, s.sb.Detach()) // which lets what is being sent come to its end
}

// stderr returns the end of what the process wrote to its standard error, if it has ended.
func (s *stream) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said
}

func (s *stream) readStderr() string {
	late := time.AfterFunc(farewell, func() { s.p.Stderr.Close() })
	defer late.Stop()
	var end []byte
	piece := make([]byte, keepStderr)
	for {
		n, err := s.p.Stderr.Read(piece)
		end = append(end, piece[:n]...)
		end = end[max(0, len(end)-keepStderr):]
		if err != nil {
			break
		}
	}
	return remote.Words(string(end), keepStderr)
}

// errEnded is the error about a process that has ended without a word.
var errEnded = errors.New("the process has ended at once")

// ended names the end of a connection that had not begun.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return err
}
