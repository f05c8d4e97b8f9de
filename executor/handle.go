package executor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Handle names a session across processes. It is safe to store and to log, contains no secret, and
// is not signed: a program that lets strangers choose handles lets them choose any session of this
// owner.
//
// It carries the limits and TTLs of the Spec, because a holder that attaches does not have the
// Spec. It carries Meta so that the statistics of experiments survive a restart. A handle from a
// store is hostile input: it is parsed strictly, and the provider checks the owner.
type Handle struct {
	Backend string            `json:"b"`           // Info.Name; a router selects the backend by it
	Type    string            `json:"t"`           // Info.Type; Attach refuses another type
	Session string            `json:"s"`           // unique within the backend
	Created time.Time         `json:"c"`           // by the provider's clock, if the provider reports it
	State   json.RawMessage   `json:"d,omitempty"` // private to the adapter; a hint, never an address to trust
	Run     RunLimits         `json:"r,omitzero"`  // the default of runs, from the Spec
	MaxRun  RunLimits         `json:"x,omitzero"`  // the ceiling of runs, from the Spec; zero fields: those of Run
	IdleTTL time.Duration     `json:"i,omitempty"` // from the Spec, or from the last KeepAlive of this holder
	MaxLife time.Duration     `json:"l,omitempty"` // from the Spec
	Meta    map[string]string `json:"m,omitempty"` // data of wrappers, each with its prefix: "router.route", "router.assigned"

	// Fence, if not zero, makes Attach shut out all holders that attached with a lower Fence. The
	// creator has 0. Calls of those holders fail with ErrClosed, and so does an Attach with a Fence
	// lower than the highest one seen. It requires FeatureFencing.
	Fence int64 `json:"f,omitempty"`
}

const (
	handlePrefix  = "xb1."
	maxHandleText = 8 << 10
	maxHandleName = 255 // of Backend, Type and Session
)

// plainHandle has the fields of Handle without its methods.
type plainHandle Handle

// MarshalText implements encoding.TextMarshaler: "xb1." and the base64url encoding of the JSON
// form. A Handle that UnmarshalText would not accept is ErrInvalid. More than 8 KiB of text are
// ErrTooLarge.
func (h Handle) MarshalText() ([]byte, error) {
	wrong := func(kind, err error) ([]byte, error) {
		return nil, &Error{Op: "handle", Backend: h.Backend, Kind: kind, Ran: RanNo, Err: err}
	}
	if err := h.check(); err != nil {
		return wrong(ErrInvalid, err)
	}
	b, err := json.Marshal(plainHandle(h))
	if err != nil {
		return wrong(ErrInvalid, err)
	}
	text := []byte(handlePrefix + base64.RawURLEncoding.EncodeToString(b))
	if len(text) > maxHandleText {
		return wrong(ErrTooLarge, fmt.Errorf("text of %d bytes", len(text)))
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler. The text is hostile input: it has at most 8
// KiB, is decoded strictly, and must be exactly what MarshalText returns for the result, so that
// each handle has only one text. Errors are ErrInvalid.
func (h *Handle) UnmarshalText(text []byte) error {
	p, err := parseHandle(text)
	if err != nil {
		return &Error{Op: "handle", Kind: ErrInvalid, Ran: RanNo, Err: err}
	}
	*h = p
	return nil
}

// String returns the text form. If h has none, it returns "xb1.!" and the reason.
func (h Handle) String() string {
	text, err := h.MarshalText()
	if err != nil {
		return handlePrefix + "!" + err.Error()
	}
	return string(text)
}

// ParseHandle parses the text form. Errors are ErrInvalid.
func ParseHandle(s string) (Handle, error) {
	if len(s) > maxHandleText { // checked before the text is copied
		s = s[:maxHandleText+1]
	}
	var h Handle
	err := h.UnmarshalText([]byte(s))
	return h, err
}

var errHandle = errors.New("not a session handle")

func parseHandle(text []byte) (Handle, error) {
	rest, ok := bytes.CutPrefix(text, []byte(handlePrefix))
	if !ok || len(text) > maxHandleText {
		return Handle{}, errHandle
	}
	b, err := base64.RawURLEncoding.Strict().AppendDecode(nil, rest)
	if err != nil {
		return Handle{}, errHandle
	}
	var p plainHandle
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Handle{}, fmt.Errorf("%w: %w", errHandle, err)
	}
	h := Handle(p)
	again, err := h.MarshalText()
	if err != nil {
		return Handle{}, err
	}
	if !bytes.Equal(again, text) { // repeated or misspelt keys, trailing data, another spelling of a number
		return Handle{}, errHandle
	}
	return h, nil
}

// check returns why h cannot have a text form, or nil.
func (h Handle) check() error {
	var bad invalid
	for _, f := range []struct{ name, value string }{{"backend", h.Backend}, {"type", h.Type}, {"session", h.Session}} {
		if f.value == "" || len(f.value) > maxHandleName || !printable(f.value) {
			bad.add("%s: want 1 to %d printable bytes", f.name, maxHandleName)
		}
	}
	for k, v := range h.Meta {
		if k == "" || !printable(k) || !utf8.ValidString(v) {
			bad.add("meta: a key is not printable, or a value is not UTF-8")
			break
		}
	}
	h.Run.check("run", &bad)
	h.MaxRun.check("max run", &bad)
	if h.IdleTTL < 0 || h.MaxLife < 0 || h.Fence < 0 {
		bad.add("idle ttl, max life or fence: negative")
	}
	return errors.Join(bad...)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
