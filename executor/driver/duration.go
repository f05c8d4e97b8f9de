package driver

import (
	"encoding/json"
	"errors"
	"time"
)

// Duration is a time.Duration that configuration writes as "30s".
type Duration time.Duration

var errDuration = errors.New(`want a duration with its unit in quotes, such as "30s" or "1h30m"`)

// String returns the form of time.Duration.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It takes what time.ParseDuration takes.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return errDuration
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. A bare number is refused: nobody knows its unit.
func (d *Duration) UnmarshalJSON(p []byte) error {
	var s string
	if string(p) == "null" {
		return nil
	}
	if json.Unmarshal(p, &s) != nil {
		return errDuration
	}
	return d.UnmarshalText([]byte(s))
}
