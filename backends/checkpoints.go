package backends

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

// Checkpoint says which conversations go on after their sandbox has ended: see
// sessions.Checkpoints.
type Checkpoint struct {
	Every Runs          `json:"every,omitzero"` // "5 runs"; required
	Most  driver.Size   `json:"most,omitzero"`  // of an archive; default 10MiB, at most 64MiB
	Key   driver.Secret `json:"key,omitzero"`   // at least 32 random bytes; required
	// WeakerIsolation lets conversations go on where the isolation is weaker than it was, for
	// example in a container after Pyodide. Those of escalate and drain do so without it.
	WeakerIsolation bool `json:"weaker_isolation,omitempty"`
}

// Runs is a number of runs, written as "5 runs".
type Runs int

var runsForm = regexp.MustCompile(`^([1-9][0-9]{0,5}) runs?$`)

// MarshalText implements encoding.TextMarshaler.
func (r Runs) MarshalText() ([]byte, error) {
	if r == 1 {
		return []byte("1 run"), nil
	}
	return fmt.Appendf(nil, "%d runs", r), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Runs) UnmarshalText(text []byte) error {
	m := runsForm.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf(`want a number of runs, such as "5 runs", got %.50q`, text)
	}
	n, err := strconv.Atoi(string(m[1]))
	*r = Runs(n)
	return err
}

// check looks at all but the value of the key, which is read when the broker is opened.
func (c Checkpoint) check(bad *problems) {
	if c == (Checkpoint{}) {
		return
	}
	if c.Every == 0 {
		bad.add("checkpoint.every", `missing; want after how many runs a checkpoint is made, such as "5 runs"`)
	}
	if c.Most < 0 || c.Most > sessions.MaxCheckpoint {
		bad.add("checkpoint.most", "want at most %dMiB", sessions.MaxCheckpoint>>20)
	}
	if c.Key.IsZero() {
		bad.add("checkpoint.key", "missing; name a secret of at least %d random bytes, as {env: NAME} or {file: PATH}: without a key nothing is kept", sessions.MinKey)
	}
}

// open reads the key.
func (c Checkpoint) open(owner string) (o sessions.Checkpoints, err error) {
	if c.Every == 0 {
		return o, nil
	}
	key, err := c.Key.Value()
	if err == nil && len(key) < sessions.MinKey {
		err = fmt.Errorf("%s has %d bytes; want at least %d random ones", c.Key, len(key), sessions.MinKey)
	}
	if err != nil {
		return o, driver.At("sessions.checkpoint.key", err)
	}
	return sessions.Checkpoints{Every: int(c.Every), Most: int64(c.Most), Key: []byte(key), Weaker: c.WeakerIsolation, Owner: owner}, nil
}
