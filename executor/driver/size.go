package driver

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
)

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
