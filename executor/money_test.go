package executor_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestMoney(t *testing.T) {
	for _, c := range []struct {
		json string
		want executor.Money
		text string // "": that of the JSON
	}{
		{"0", 0, ""},
		{"5", 5_000_000, ""},
		{"5.00", 5_000_000, "5"},
		{`"0.0504"`, 50_400, "0.0504"},
		{"5.04e-02", 50_400, "0.0504"},
		{"1e3", 1_000_000_000, "1000"},
		{"0.000001", 1, ""},
		{"9223372036854.775806", math.MaxInt64 - 1, ""},
	} {
		var m executor.Money
		if err := json.Unmarshal([]byte(c.json), &m); err != nil || m != c.want {
			t.Errorf("%s: got %d and %v", c.json, int64(m), err)
		}
		want := c.text
		if want == "" {
			want = c.json
		}
		if got := m.String(); got != want {
			t.Errorf("%s: got %q", c.json, got)
		}
		out, err := json.Marshal(m)
		var again executor.Money
		if err := json.Unmarshal(out, &again); err != nil || again != m {
			t.Errorf("%s: read back %s as %d: %v", c.json, out, int64(again), err)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if got := executor.Money(math.MinInt64).String(); got != "-9223372036854.775808" {
		t.Errorf("got %s", got)
	}
	for _, text := range []string{"-1", "0.0000001", "1e30", "9223372036854.775807", `"1 EUR"`, `""`, `"1/2"`, `"0x10"`, `"1e999999999"`, `"Inf"`, "true", "[1]", `"."`} {
		var m executor.Money
		if err := json.Unmarshal([]byte(text), &m); err == nil {
			t.Errorf("%s: got %d", text, int64(m))
		}
	}
}
