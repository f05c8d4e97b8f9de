package pyodide

import (
	"bufio"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/execbroker/execbroker/executor"
)

// The frames between this program and the host program in Deno; host/wire.mjs has the same
// constants.
//
//	to the host     u32 length, u8 type, u32 id, payload
//	from the host   u32 length, nonce, u8 type, u32 id, payload
//
// Numbers are little-endian; length counts the bytes that follow it. The nonce is random for each
// process and known only to the trusted thread of the host, so that no other writer to its standard
// output can forge a frame. A process that breaks the rules is killed.
const (
	toInit      = 1 // nonce, JSON of hostOptions
	toRun       = 2 // f64 wall time in ms or -1, u8 whether the run has input, u32 length, JSON of runRequest, code
	toStdin     = 3 // bytes; empty at the end of the input
	toInterrupt = 4
	toCredit    = 5 // u32 bytes
	toCall      = 6 // u32 length, JSON of callRequest, data
)

const (
	fromReady   frameType = 1 + iota // JSON of hostReady
	fromStarted                      // u32 cell
	fromStdout
	fromStderr
	fromOutput // u8 flag, part of a bundle
	fromWant   // u32 number of bytes of standard input that the host can accept
	fromEnd    // u8 flag, part of the JSON of runEnd
	fromFile   // an entry of the file system that has changed
	fromData   // u32 file, f64 offset, contents
	fromSynced // the run is over
	fromReply  // u32 length, JSON, data
	fromLate   // the wall time is over, and the code was interrupted
	fromStuck  // the code can only be stopped by killing the process
	fromFatal  // JSON of hostFatal
	fromGiven  // the code is about to be passed to the interpreter
)

const (
	nonceLen  = 16
	headLen   = 5       // type and id
	maxFrame  = 1 << 20 // bytes after the length in a frame from the host, without the nonce
	maxCode   = 64 << 20
	window    = 1 << 20 // bytes that the host may send before we confirm them
	frameCost = 64      // added to the size of the payload of each frame
	chunkLen  = 256 << 10
)

// frameType is the type of a frame from the host.
type frameType uint8

// counted reports whether frames of this type count in the window of the host.
func (t frameType) counted() bool {
	switch t {
	case fromStdout, fromStderr, fromOutput, fromFile, fromData:
		return true
	}
	return false
}

// frame is a frame from the host. The payload belongs to the frame.
type frame struct {
	typ     frameType
	id      uint32
	payload []byte
}

// cost returns how much the frame counts in the window.
func (f frame) cost() int { return len(f.payload) + frameCost }

// appendFrame appends a frame to the host to b. parts are its payload.
func appendFrame(b []byte, typ uint8, id uint32, parts ...[]byte) []byte {
	n := headLen
	for _, p := range parts {
		n += len(p)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = append(b, typ)
	b = binary.LittleEndian.AppendUint32(b, id)
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// errNonce and errFrame say that the host, or something that can write to its output, breaks the
// protocol.
var (
	errNonce = errors.New("a frame without the nonce of its process")
	errFrame = errors.New("a frame that breaks the protocol")
	// errTooLong says that a message in several parts is too long.
	errTooLong = fmt.Errorf("%w: a message is too long", errFrame)
)

// frameReader decodes frames from a host.
type frameReader struct {
	r     *bufio.Reader
	nonce [nonceLen]byte
	head  [4 + nonceLen + headLen]byte
}

func newFrameReader(r io.Reader, nonce [nonceLen]byte) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10), nonce: nonce}
}

// next returns the next frame. If the stream ends between two frames, the error is io.EOF.
func (fr *frameReader) next() (frame, error) {
	h := &fr.head
	if _, err := io.ReadFull(fr.r, h[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n < nonceLen+headLen || n > nonceLen+maxFrame {
		return frame{}, fmt.Errorf("%w: length %d", errFrame, n)
	}
	if subtle.ConstantTimeCompare(h[4:4+nonceLen], fr.nonce[:]) != 1 {
		return frame{}, errNonce
	}
	f := frame{typ: frameType(h[4+nonceLen]), id: binary.LittleEndian.Uint32(h[5+nonceLen:]), payload: make([]byte, n-nonceLen-headLen)}
	if f.typ < fromReady || f.typ > fromGiven {
		return frame{}, fmt.Errorf("%w: type %d", errFrame, f.typ)
	}
	if _, err := io.ReadFull(fr.r, f.payload); err != nil {
		return frame{}, io.ErrUnexpectedEOF
	}
	return f, nil
}

// The first byte of a part of a long message.
const (
	partMore   = 0
	partLast   = 1
	partBroken = 2 // an interrupt came in between; the earlier parts are discarded
)

// parts joins the parts of long messages.
type parts struct {
	buf []byte
	max int
}

// add adds a part. It returns the message after its last part, and nil before that.
func (p *parts) add(payload []byte) (msg []byte, err error) {
	if len(payload) == 0 || payload[0] > partBroken {
		return nil, fmt.Errorf("%w: part without a flag", errFrame)
	}
	if payload[0] == partBroken {
		p.buf = nil
		return nil, nil
	}
	if len(p.buf)+len(payload)-1 > p.max {
		return nil, errTooLong
	}
	p.buf = append(p.buf, payload[1:]...)
	if payload[0] == partMore {
		return nil, nil
	}
	msg, p.buf = p.buf, nil
	if msg == nil {
		msg = []byte{}
	}
	return msg, nil
}

// The limits of cell.py for a value.
const (
	maxTypes     = 32
	maxTypeLen   = 100
	maxTypeBytes = 16 << 20
	maxBundle    = maxTypes*(maxTypeLen+6) + 64<<20
)

// decodeBundle decodes a value: u8 whether it is the value of the last expression, u16 count, and
// for each representation u16 length, media type, u32 length, data.
func decodeBundle(b []byte) (*executor.Output, error) {
	d := decoder{b: b}
	out := &executor.Output{Main: d.u8() == 1}
	n := int(d.u16())
	if n > maxTypes {
		return nil, fmt.Errorf("%w: %d representations", errFrame, n)
	}
	out.Data = make(executor.MIMEBundle, n)
	for range n {
		mime := string(d.bytes(int(d.u16())))
		data := d.bytes(int(d.u32()))
		if d.bad || !validMIME(mime) {
			return nil, fmt.Errorf("%w: representation", errFrame)
		}
		out.Data[mime] = data
	}
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("%w: value", errFrame)
	}
	return out, nil
}

// validMIME reports whether s is a lower-case media type without parameters.
func validMIME(s string) bool {
	slashes := 0
	for _, c := range []byte(s) {
		switch {
		case c == '/':
			slashes++
		case c <= ' ' || c > '~' || c >= 'A' && c <= 'Z' || c == ';' || c == ',' || c == '"' || c == '\\':
			return false
		}
	}
	return slashes == 1 && len(s) >= 3 && len(s) <= maxTypeLen && s[0] != '/' && s[len(s)-1] != '/'
}

// envelope encodes JSON with a length in front, so that data can follow.
func envelope(v any) []byte {
	j, err := json.Marshal(v)
	if err != nil {
		panic(err) // impossible: v has a type of this package
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(j))), j...)
}

// openEnvelope decodes the JSON into v and returns the data after it.
func openEnvelope(b []byte, v any) (data []byte, err error) {
	d := decoder{b: b}
	head := d.bytes(int(d.u32()))
	if d.bad {
		return nil, fmt.Errorf("%w: envelope", errFrame)
	}
	if err := json.Unmarshal(head, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return d.b, nil
}

// decoder reads numbers and bytes. Reading beyond the end sets bad and returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.b, d.bad = nil, true
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u8() uint8 {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// count returns an f64 that must be a whole number, from 0 to the largest size of a file.
func (d *decoder) count() int64 {
	f := d.f64()
	if !(f >= 0 && f < 1<<48) || f != math.Trunc(f) {
		d.bad = true
		return 0
	}
	return int64(f)
}

func (d *decoder) f64() float64 {
	if b := d.bytes(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}
