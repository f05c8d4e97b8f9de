package flytest

import (
	"encoding/json"
	"fmt"
	"time"
)

// duration is "30s", or a number of nanoseconds, as Fly's clients send it.
type duration struct{ time.Duration }

func (d *duration) UnmarshalJSON(b []byte) error {
	var n int64
	if json.Unmarshal(b, &n) == nil {
		d.Duration = time.Duration(n)
		return d.check()
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("want a duration like \"30s\", not %.40s", b)
	}
	if s == "" {
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return err
	}
	d.Duration = v
	return d.check()
}

func (d *duration) check() error {
	if d.Duration < 0 || d.Duration > maxStop {
		return fmt.Errorf("want at most %v, not %v", maxStop, d.Duration)
	}
	return nil
}
