package driver

import (
	"encoding/json"
	"errors"
	"time"
)

// DefaultMaxLife is what a zero Life means.
const DefaultMaxLife = 24 * time.Hour

// Life is how long a sandbox lives at most, in use or not, if its Spec does not say. Configuration
// writes it as "24h", or as "none" for no bound: a sandbox that nothing ends has to be asked for.
// The zero value is DefaultMaxLife, a negative one no bound. A driver declares Life.Max as
// Capabilities.MaxLife.
type Life time.Duration

// NoLife is the Life that configuration writes as "none".
const NoLife Life = -1

var errLifeForm = errors.New(`want a positive duration with its unit in quotes, such as "24h", or "none"`)

// Max returns the bound; zero is none.
func (l Life) Max() time.Duration {
	switch {
	case l == 0:
		return DefaultMaxLife
	case l < 0:
		return 0
	}
	return time.Duration(l)
}

// MarshalText implements encoding.TextMarshaler.
func (l Life) MarshalText() ([]byte, error) {
	if l < 0 {
		return []byte("none"), nil
	}
	return Duration(l).MarshalText()
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Life) UnmarshalJSON(p []byte) error {
	var text string
	if string(p) == "null" {
		return nil
	}
	if json.Unmarshal(p, &text) != nil {
		return errLifeForm
	}
	if text == "none" {
		*l = NoLife
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errLifeForm
	}
	*l = Life(d)
	return nil
}
