package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// stdio is the standard input and output of a process in a container over one connection to the
// engine, which interleaves stdout and stderr in frames. What the process writes to stderr is
// diagnosis; its end is kept.
type stdio struct {
	net.Conn        // of the engine; written to as it is
	heard    func() // called when the process has said something, or is no longer listened to; may be nil
	once     sync.Once
	r        *bufio.Reader
	left     uint32 // of the frame that is being read
	head     [8]byte
	piece    []byte // of stderr, as it is read; made when there is some, and used again

	mu  sync.Mutex
	err []byte // no longer than keepStderr, and made once
}

// The kinds of frames.
const (
	frameStdin  = 0
	frameStdout = 1
	frameStderr = 2
)

const (
	readBuffer = 64 << 10
	keepStderr = 4 << 10
)

var errKind = errors.New("the engine sent a frame of kind")

func newStdio(conn net.Conn) *stdio {
	return &stdio{Conn: conn, r: bufio.NewReaderSize(conn, readBuffer)}
}

// Read reads what the process wrote to stdout.
func (s *stdio) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.left == 0 {
		head := &s.head
		_, err := io.ReadFull(s.r, head[:])
		s.once.Do(s.hear)
		if err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(head[4:])
		switch head[0] {
		case frameStdin, frameStdout:
			s.left = size
		case frameStderr:
			if err := s.keep(int64(size)); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("%w %d", errKind, head[0])
		}
	}
	n, err := s.r.Read(p[:min(uint64(len(p)), uint64(s.left))])
	s.left -= uint32(n)
	if s.left > 0 {
		err = cut(err)
	}
	return n, err
}

func (s *stdio) hear() {
	if s.heard != nil {
		s.heard()
	}
}

// Close implements io.Closer.
func (s *stdio) Close() error {
	s.once.Do(s.hear)
	return s.Conn.Close()
}

// keep reads n bytes of stderr and keeps the last ones.
func (s *stdio) keep(n int64) error {
	skip := max(0, n-keepStderr)
	for left := skip; left > 0; {
		k, err := s.r.Discard(int(min(left, 1<<30)))
		if err != nil {
			return cut(err)
		}
		left -= int64(k)
	}
	if s.piece == nil {
		s.piece = make([]byte, keepStderr)
	}
	k, err := io.ReadFull(s.r, s.piece[:n-skip])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = make([]byte, 0, keepStderr)
	}
	if over := len(s.err) + k - keepStderr; over > 0 {
		s.err = s.err[:copy(s.err, s.err[over:])]
	}
	s.err = append(s.err, s.piece[:k]...)
	return cut(err)
}

// cut makes an end within a frame an error.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// stderr returns the end of what the process wrote to stderr.
func (s *stdio) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.err)
}
