package executor

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Bytes is output of code. In JSON it is a string if it is valid UTF-8, and otherwise {"base64":
// "..."}. In JSON nil and empty are the same.
type Bytes []byte

// String returns b as a string, unchanged.
func (b Bytes) String() string { return string(b) }

// base64Bytes is the JSON form of bytes that are not valid UTF-8.
type base64Bytes struct {
	B []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.Valid(b) {
		return json.Marshal(string(b))
	}
	return json.Marshal(base64Bytes{b})
}

// UnmarshalJSON implements json.Unmarshaler. A JSON null becomes empty Bytes.
func (b *Bytes) UnmarshalJSON(p []byte) error {
	if len(p) > 0 && p[0] == '"' {
		var s string
		err := json.Unmarshal(p, &s)
		*b = Bytes(s)
		return err
	}
	var w *base64Bytes
	err := json.Unmarshal(p, &w)
	switch {
	case err != nil:
		return err
	case w == nil:
		*b = nil
	case w.B == nil:
		return errors.New(`executor: want a string or {"base64": "..."}`)
	default:
		*b = w.B
	}
	return nil
}
