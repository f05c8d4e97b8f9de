package jupyter

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

// protocolVersion is the version of the messages, and protocolV1 the name of the younger framing.
const (
	protocolVersion = "5.3"
	protocolV1      = "v1.kernel.websocket.jupyter.org"
)

// The bounds of a message of a client, besides its size.
const (
	maxParts = 64      // the parts of a message in the younger framing
	maxName  = 256     // of what its header says
	maxHead  = 8 << 10 // of its header, which answers repeat
)

// The channels that clients write to.
const (
	shell   = "shell"
	control = "control"
	stdio   = "stdin"
	iopub   = "iopub"
)

// header is what names a message.
type header struct {
	ID       string `json:"msg_id"`
	Type     string `json:"msg_type"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Version  string `json:"version"`
}

// message is a message as it is framed. Its parts are JSON.
type message struct {
	Channel  string            `json:"channel"`
	Header   json.RawMessage   `json:"header"`
	Parent   json.RawMessage   `json:"parent_header"`
	Metadata json.RawMessage   `json:"metadata"`
	Content  json.RawMessage   `json:"content"`
	Buffers  []json.RawMessage `json:"buffers"` // always empty from this server
}

// request is a message of a client. Of its header only the names count: clients write the rest as
// they like.
type request struct {
	ID      string `json:"msg_id"`
	Type    string `json:"msg_type"`
	channel string
	raw     json.RawMessage // the header, which is the parent of the answers
	content json.RawMessage
}

// none is an empty part of a message.
var none = json.RawMessage("{}")

// answer makes a message for clients. Without a parent it answers no request.
func answer(channel, kind, session string, parent json.RawMessage, content any) (message, error) {
	if parent == nil {
		parent = none
	}
	head, err := json.Marshal(header{
		ID: strings.ToLower(rand.Text()), Type: kind, Session: session, Username: "kernel", Version: protocolVersion,
		Date: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	})
	if err != nil {
		return message{}, err
	}
	body, err := json.Marshal(content)
	return message{channel, head, parent, none, body, []json.RawMessage{}}, err
}

// framing is how messages are in a WebSocket. A message may come in several frames, so both forms
// are read as a stream of bytes.
type framing struct {
	payload byte
	decoder func(r *limited) func() (message, error)
	encode  func(message) ([]byte, error)
}

var (
	framingJSON = framing{websocket.TextFrame, decoderJSON, encodeJSON}
	framingV1   = framing{websocket.BinaryFrame, decoderV1, encodeV1}
)

// receiver returns a function that reads the next message, of at most so many bytes.
func (f framing) receiver(r io.Reader, most int64) func() (request, error) {
	in := &limited{r: r}
	next := f.decoder(in)
	return func() (q request, err error) {
		in.left = most
		m, err := next()
		if err != nil {
			return q, err
		}
		q = request{channel: cmp.Or(m.Channel, shell), raw: m.Header, content: m.Content} // some clients name no channel
		if len(m.Header) > maxHead || json.Unmarshal(m.Header, &q) != nil {
			return q, errors.New("the header of a message is not as the protocol has it")
		}
		for _, name := range []string{q.ID, q.Type, q.channel} {
			if name == "" || len(name) > maxName {
				return q, errors.New("a message has no msg_id or msg_type, or a long one")
			}
		}
		return q, nil
	}
}

func decoderJSON(r *limited) func() (message, error) {
	d := json.NewDecoder(r)
	return func() (m message, err error) {
		err = d.Decode(&m) // messages with buffers are not JSON in this framing, and are refused by that
		return m, err
	}
}

// encodeJSON repeats the names of the message outside of its header, where old clients look.
func encodeJSON(m message) ([]byte, error) {
	var h header
	if err := json.Unmarshal(m.Header, &h); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		message
		ID   string `json:"msg_id"`
		Type string `json:"msg_type"`
	}{m, h.ID, h.Type})
}

// decoderV1 reads numbers of eight bytes, the little end first: how many offsets there are, and the
// offsets of the channel, the header, the parent, the metadata, the content, any buffers, and the
// end.
func decoderV1(r *limited) func() (message, error) {
	return func() (m message, err error) {
		var number [8]byte
		if _, err := io.ReadFull(r, number[:]); err != nil {
			return m, err
		}
		n := binary.LittleEndian.Uint64(number[:])
		if n < 6 || n > maxParts {
			return m, fmt.Errorf("a message has %d offsets; want 6 to %d", n, maxParts)
		}
		offsets := make([]uint64, n)
		if err := binary.Read(r, binary.LittleEndian, offsets); err != nil {
			return m, err
		}
		parts := make([]json.RawMessage, n-1)
		at := 8 * (n + 1)
		for i, begin := range offsets[:n-1] {
			end := offsets[i+1]
			if begin != at || end < begin || end-begin > uint64(max(r.left, 0)) {
				return m, fmt.Errorf("the offset %d of a message is wrong, or the message too large", i)
			}
			parts[i] = make([]byte, end-begin)
			if _, err := io.ReadFull(r, parts[i]); err != nil {
				return m, err
			}
			at = end
		}
		return message{string(parts[0]), parts[1], parts[2], parts[3], parts[4], parts[5:]}, nil
	}
}

func encodeV1(m message) ([]byte, error) {
	parts := [][]byte{[]byte(m.Channel), m.Header, m.Parent, m.Metadata, m.Content}
	at := uint64(8 * (len(parts) + 2))
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(parts)+1))
	for _, p := range parts {
		out = binary.LittleEndian.AppendUint64(out, at)
		at += uint64(len(p))
	}
	out = binary.LittleEndian.AppendUint64(out, at)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out, nil
}

// limited bounds the size of each message of a client.
type limited struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errors.New("a message is too large")
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
