package driver

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
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

// UnmarshalJSON implements json.Unmarshaler. A bare number is refused, since its unit is not known.
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

// Size is a number of bytes that configuration writes as a number or as "512MiB".
type Size int64

var (
	sizeForm  = regexp.MustCompile(`^([0-9]{1,18})(|KiB|MiB|GiB|TiB)$`)
	sizeShift = map[string]int{"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
)

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, (*int64)(s)) == nil {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if m := sizeForm.FindStringSubmatch(text); m != nil {
			n, err := strconv.ParseInt(m[1], 10, 64)
			if err == nil && n <= math.MaxInt64>>sizeShift[m[2]] {
				*s = Size(n << sizeShift[m[2]])
				return nil
			}
		}
	}
	return errors.New(`want a size such as 1048576 or "512MiB"`)
}

// Limits are executor.Limits as configuration writes them.
type Limits struct {
	CPUs      float64 `json:"cpus,omitempty"`
	Memory    Size    `json:"memory,omitempty"`
	Disk      Size    `json:"disk,omitempty"`
	Processes int     `json:"processes,omitempty"`
}

// Executor returns l as a Spec has it.
func (l Limits) Executor() executor.Limits {
	return executor.Limits{CPUs: l.CPUs, MemoryBytes: int64(l.Memory), DiskBytes: int64(l.Disk), Processes: l.Processes}
}

// Validate refuses what is negative.
func (l Limits) Validate() error {
	if l.CPUs < 0 || l.Memory < 0 || l.Disk < 0 || l.Processes < 0 {
		return errors.New("negative")
	}
	return nil
}

// DefaultMaxLife is what a zero Life means.
const DefaultMaxLife = 24 * time.Hour

// Life is the longest life of a sandbox, in use or not, if its Spec does not say. Configuration
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
