// Package wire holds the frames that this module and the runner inside a sandbox exchange, and what
// their values mean in the types of the contract. The host program of package pyodide uses the same
// frames, for what it has in common with a runner.
//
// A connection is a byte stream in both directions. It carries frames: twelve bytes of header and a
// payload. Frames of stream 0 are about the connection; all others belong to a stream that the
// client opened with a number of its choice: a run, a file that is read or written, a question.
// Several streams are under way at once, and none can hold up another: how much of a stream may be
// in flight is bounded by credit that its receiver grants, so that a reader of the connection never
// has to wait for the user of one stream.
//
// Text would be easier to look at. But base64 in JSON costs a third of the throughput and most of
// the processor time of a program that prints a lot, and file names and output are bytes and not
// text.
//
// What comes from a sandbox is hostile. The decoders here bound what they accept and allocate, and
// report everything else as an error: ErrFrame, ErrNonce, ErrValue, ErrLong or ErrCredit. The
// Python and JavaScript counterparts are in package runner, and that of the other host is
// pyodide/host.
//
// # Header
//
//	byte 0      type
//	byte 1      flags
//	byte 2, 3   channel of a Data frame
//	byte 4-7    stream
//	byte 8-11   length of the payload, at most MaxPayload
//
// Numbers are unsigned and big endian.
package wire

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the protocol. Both sides send theirs in Hello and refuse another.
const Version = 1

// MaxPayload is the largest payload of a frame. What is longer travels in several.
const MaxPayload = 1 << 20

// HeaderSize is the size of a frame without its payload.
const HeaderSize = 12

// ErrFrame says that what was received is not a frame. Nothing that follows on the connection can
// be understood.
var ErrFrame = errors.New("not a frame of the runner protocol")

// ErrNonce says that a frame does not come from the one who knows the nonce of the connection.
var ErrNonce = errors.New("a frame without the nonce of its connection")

// ErrLong says that a message in several frames is longer than its receiver takes.
var ErrLong = errors.New("a message of the runner protocol is too long")

// Type says what a frame is. C and R say who sends it: the client or the runner.
type Type uint8

// The types of frames.
const (
	Hello   Type = 1  // C, R: a map; the first frame in each direction
	Ping    Type = 2  // C: answered with the same payload, after all that was asked for before; without a Hello, with how long ago a holder sent a frame, in nanoseconds, 8 bytes
	Pong    Type = 3  // R
	Bye     Type = 4  // R: a map with the reason; the last frame
	Open    Type = 5  // C: a map; opens a stream
	Data    Type = 6  // C, R: bytes of a channel; costs credit
	Credit  Type = 7  // C, R: a number of 4 bytes: that much more may be sent on this stream
	Stop    Type = 8  // C: stop what the stream is about; it still ends with Done or Fail
	Started Type = 9  // R: a map; the code runs now
	Output  Type = 10 // R: a map of media types, perhaps in several frames; costs credit
	Done    Type = 11 // R: a map; ends the stream
	Fail    Type = 12 // R: a map; ends the stream: what was asked for was not done
)

// String returns the name of t.
func (t Type) String() string {
	names := [...]string{Hello: "hello", Ping: "ping", Pong: "pong", Bye: "bye", Open: "open", Data: "data", Credit: "credit",
		Stop: "stop", Started: "started", Output: "output", Done: "done", Fail: "fail"}
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (t Type) valid() bool { return t >= Hello && t <= Fail }

// Flags modify a frame.
type Flags uint8

// The flags.
const (
	More Flags = 1 << iota // the payload goes on in the next frame of this type on the stream
	End                    // of Data: nothing follows on this channel; of other types: what has come of the payload is void
	flagsEnd
)

// Channel says what a Data frame holds.
type Channel uint16

// The channels of Data frames.
const (
	Contents Channel = iota // of a file, or of standard input
	Stdout
	Stderr
	Entries // values, one after the other: of a directory, or changed files
	channelsEnd
)

// Frame is one message.
type Frame struct {
	Type    Type
	Flags   Flags
	Channel Channel
	Stream  uint32
	Payload []byte
}

// Costs reports whether the frame is paid with credit.
func (f Frame) Costs() bool { return f.Type == Data || f.Type == Output }

// valid reports what is wrong with a header.
func (f Frame) valid(length uint32) error {
	switch {
	case f.Flags >= flagsEnd:
		return fmt.Errorf("%w: unknown flags %#x", ErrFrame, uint8(f.Flags))
	case f.Channel >= channelsEnd:
		return fmt.Errorf("%w: unknown channel %d", ErrFrame, f.Channel)
	case (f.Type <= Bye) != (f.Stream == 0):
		return fmt.Errorf("%w: %v on stream %d", ErrFrame, f.Type, f.Stream)
	case length > MaxPayload:
		return fmt.Errorf("%w: %v with %d bytes", ErrFrame, f.Type, length)
	}
	return nil
}

// Append appends the encoded frame to dst. It panics if the payload is longer than MaxPayload.
func (f Frame) Append(dst []byte) []byte {
	if len(f.Payload) > MaxPayload {
		panic("wire: payload too long")
	}
	dst = append(dst, byte(f.Type), byte(f.Flags))
	dst = binary.BigEndian.AppendUint16(dst, uint16(f.Channel))
	dst = binary.BigEndian.AppendUint32(dst, f.Stream)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Payload)))
	return append(dst, f.Payload...)
}

// AppendLong is Append for a payload of any length, in as many frames as it takes.
func (f Frame) AppendLong(dst []byte) []byte {
	rest := f.Payload
	for f.Flags |= More; len(rest) > MaxPayload; rest = rest[MaxPayload:] {
		f.Payload = rest[:MaxPayload]
		dst = f.Append(dst)
	}
	f.Flags, f.Payload = f.Flags&^More, rest
	return f.Append(dst)
}

// Parts joins what AppendLong has cut. Max bounds it.
type Parts struct {
	Max int
	buf []byte
}

// Add returns the payload of a message with its last frame, and nil with the others.
func (p *Parts) Add(f Frame) ([]byte, error) {
	switch {
	case f.Flags&End != 0:
		p.buf = nil
		return nil, nil
	case len(p.buf)+len(f.Payload) > p.Max:
		p.buf = nil
		return nil, fmt.Errorf("%w: %v with more than %d bytes", ErrLong, f.Type, p.Max)
	case f.Flags&More != 0:
		p.buf = append(p.buf, f.Payload...)
		return nil, nil
	case p.buf == nil: // there were no others
		return f.Payload[:len(f.Payload):len(f.Payload)], nil
	}
	whole := append(p.buf, f.Payload...)
	p.buf = nil
	return whole, nil
}

// A Reader decodes frames.
type Reader struct {
	Nonce      []byte // stands in front of each frame
	r          io.Reader
	buf        []byte
	start, end int // of what was read and not yet returned
	err        error
}

// NewReader returns a Reader of r. It needs no buffering below it.
func NewReader(r io.Reader) *Reader { return &Reader{r: r, buf: make([]byte, 64<<10)} }

// Next returns the next frame. Its payload is part of the buffer of the Reader and valid until Next
// is called again. The error is io.EOF at the end between frames, io.ErrUnexpectedEOF within one,
// an ErrNonce, an ErrFrame, or what the underlying reader says; it stays.
func (r *Reader) Next() (Frame, error) {
	for {
		f, rest, err := r.parse(r.buf[r.start:r.end])
		switch err {
		case nil:
			r.start = r.end - len(rest)
			return f, nil
		case io.ErrUnexpectedEOF:
			if err := r.fill(); err != nil {
				return Frame{}, err
			}
		default:
			r.err = err
			return Frame{}, err
		}
	}
}

func (r *Reader) parse(p []byte) (Frame, []byte, error) {
	n := len(r.Nonce)
	if len(p) < n {
		return Frame{}, p, io.ErrUnexpectedEOF
	}
	if subtle.ConstantTimeCompare(p[:n], r.Nonce) != 1 {
		return Frame{}, p, ErrNonce
	}
	return Parse(p[n:])
}

// Parse decodes the frame at the beginning of p and returns the rest. Its payload is part of p. The
// error is io.ErrUnexpectedEOF if the frame goes on behind p, or an ErrFrame.
func Parse(p []byte) (f Frame, rest []byte, err error) {
	if len(p) > 0 && !Type(p[0]).valid() { // an error message, perhaps, after which nothing comes
		return Frame{}, p, fmt.Errorf("%w: unknown %v", ErrFrame, Type(p[0]))
	}
	if len(p) < HeaderSize {
		return Frame{}, p, io.ErrUnexpectedEOF
	}
	f = Frame{
		Type:    Type(p[0]),
		Flags:   Flags(p[1]),
		Channel: Channel(binary.BigEndian.Uint16(p[2:])),
		Stream:  binary.BigEndian.Uint32(p[4:]),
	}
	length := binary.BigEndian.Uint32(p[8:])
	if err := f.valid(length); err != nil {
		return Frame{}, p, err
	}
	n := HeaderSize + int(length)
	if len(p) < n {
		return Frame{}, p, io.ErrUnexpectedEOF
	}
	f.Payload = p[HeaderSize:n:n]
	return f, p[n:], nil
}

// Buffered returns what was read and is not part of a returned frame: after an ErrFrame, what stood
// there instead.
func (r *Reader) Buffered() []byte { return r.buf[r.start:r.end] }

// fill reads more of a frame that has not arrived in full.
func (r *Reader) fill() error {
	if r.err == io.EOF && r.end > r.start {
		r.err = io.ErrUnexpectedEOF
	}
	if r.err != nil {
		return r.err
	}
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
	if r.end == len(r.buf) {
		// The buffer grows with what has arrived, not with what a header announces.
		buf := r.buf
		if r.end-r.start > len(buf)/2 {
			buf = make([]byte, min(2*len(buf), len(r.Nonce)+HeaderSize+MaxPayload))
		}
		r.end = copy(buf, r.buf[r.start:r.end])
		r.start, r.buf = 0, buf
	}
	n, err := r.r.Read(r.buf[r.end:])
	r.end += n
	r.err = err // returned when what has come with it is used up
	return nil
}
