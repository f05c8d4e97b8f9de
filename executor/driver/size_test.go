package driver_test

import (
	"encoding/json"
	"testing"

	"github.com/execbroker/execbroker/executor/driver"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]driver.Size{`0`: 0, `5`: 5, `"5"`: 5, `"2KiB"`: 2048, `"3MiB"`: 3 << 20, `"1GiB"`: 1 << 30, `"8388607TiB"`: 8388607 << 40} {
		var got driver.Size
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{`"8388608TiB"`, `"-1"`, `"1 MiB"`, `"1e3"`, `1.5`, `""`, `true`, `"9999999999999999999"`} {
		var got driver.Size
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s: got %d, want an error", text, got)
		}
	}
}
