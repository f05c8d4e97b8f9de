package narrow

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// No field of a request widens what the operator has configured, whichever limit it is, and whether
// the operator or the backend has set it.
func TestSpec(t *testing.T) {
	const mib = 1 << 20
	limits := executor.Limits{CPUs: 2, MemoryBytes: 64 * mib, DiskBytes: 32 * mib, Processes: 16}
	run := executor.RunLimits{WallTime: 10 * time.Second, OutputBytes: mib}
	configured := executor.Spec{Limits: limits, MaxRun: run}
	byBackend := executor.Capabilities{DefaultLimits: limits, MaxRun: run}
	list := func(hosts ...string) *executor.NetworkPolicy {
		return &executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: hosts}
	}
	mode := func(m executor.NetworkMode) *executor.NetworkPolicy { return &executor.NetworkPolicy{Mode: m} }
	reach := func(p *executor.NetworkPolicy) executor.Spec { return executor.Spec{Network: *p} }
	type world struct {
		spec executor.Spec
		caps executor.Capabilities
	}
	known := []world{{spec: configured}, {caps: byBackend}, {configured, executor.Capabilities{DefaultLimits: executor.Limits{CPUs: 64, MemoryBytes: 1 << 40, DiskBytes: 1 << 40, Processes: 1 << 20}}}}
	unknown := []world{{}, {spec: executor.Spec{Template: "large"}, caps: byBackend}} // a template has limits of its own
	for name, c := range map[string]struct {
		ask    Ask
		worlds []world
		field  string // of the refusal; "": none
	}{
		"nothing":            {Ask{}, append(known, unknown...), ""},
		"as much":            {Ask{Limits: limits, Run: run}, known, ""},
		"less":               {Ask{Limits: executor.Limits{CPUs: 0.5, MemoryBytes: mib, DiskBytes: mib, Processes: 1}, Run: executor.RunLimits{WallTime: 1, OutputBytes: 1}}, known, ""},
		"more cpus":          {Ask{Limits: executor.Limits{CPUs: 2.5}}, known, "cpus"},
		"more memory":        {Ask{Limits: executor.Limits{MemoryBytes: 64*mib + 1}}, known, "memory"},
		"more disk":          {Ask{Limits: executor.Limits{DiskBytes: 1 << 50}}, known, "disk"},
		"more processes":     {Ask{Limits: executor.Limits{Processes: 17}}, known, "processes"},
		"more time":          {Ask{Run: executor.RunLimits{WallTime: run.WallTime + 1}}, known, "wall time"},
		"no limit of time":   {Ask{Run: executor.RunLimits{WallTime: executor.NoLimit}}, known, "wall time"},
		"more output":        {Ask{Run: executor.RunLimits{OutputBytes: mib + 1}}, known, "output"},
		"negative output":    {Ask{Run: executor.RunLimits{OutputBytes: -1}}, known, "output"},
		"negative cpus":      {Ask{Limits: executor.Limits{CPUs: -1}}, known, "cpus"},
		"cpus, not a number": {Ask{Limits: executor.Limits{CPUs: math.NaN()}}, known, "cpus"},
		"negative memory":    {Ask{Limits: executor.Limits{MemoryBytes: -1}}, known, "memory"},
		"unknown cpus":       {Ask{Limits: executor.Limits{CPUs: 0.1}}, unknown, "cpus"},
		"unknown memory":     {Ask{Limits: executor.Limits{MemoryBytes: 1}}, unknown, "memory"},
		"unknown disk":       {Ask{Limits: executor.Limits{DiskBytes: 1}}, unknown, "disk"},
		"unknown processes":  {Ask{Limits: executor.Limits{Processes: 1}}, unknown, "processes"},
		"default time":       {Ask{Run: executor.RunLimits{WallTime: executor.DefaultWallTime + 1}}, unknown[:1], "wall time"},
		"no network":         {Ask{Network: mode("none")}, []world{{}, {spec: reach(mode("full"))}, {spec: reach(list("a.example"))}}, ""},
		"network for none":   {Ask{Network: mode("full")}, []world{{}, {spec: reach(mode("none"))}, {spec: reach(list("a.example"))}}, "network"},
		"network of full":    {Ask{Network: mode("full")}, []world{{spec: reach(mode("full"))}}, ""},
		"list for none":      {Ask{Network: list("a.example")}, []world{{}, {spec: reach(mode("none"))}}, "network"},
		"list of full":       {Ask{Network: list("a.example")}, []world{{spec: reach(mode("full"))}}, ""},
		"part of a list":     {Ask{Network: list("a.example")}, []world{{spec: reach(list("b.example", "a.example"))}}, ""},
		"another host":       {Ask{Network: list("a.example", "c.example")}, []world{{spec: reach(list("b.example", "a.example"))}}, "network"},
		"unknown mode":       {Ask{Network: mode("wide")}, []world{{}}, "network"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, w := range c.worlds {
				got, err := Spec(w.spec, w.caps, c.ask)
				if c.field != "" {
					var more *ExcessError
					if !errors.As(err, &more) || more.Field != c.field || !strings.HasPrefix(more.Error(), c.field+": ") {
						t.Errorf("got %+v, %v, want a refusal of %s", got, err, c.field)
					}
					continue
				}
				want := w.spec
				want.Limits = c.ask.Limits.Or(want.Limits)
				if c.ask.Network != nil {
					want.Network = *c.ask.Network
				}
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			}
		})
	}
}

// TestEveryLimitIsKnown fails when the contract gets another limit: Spec has to look at it.
func TestEveryLimitIsKnown(t *testing.T) {
	for _, c := range []struct {
		of   any
		want string
	}{
		{executor.Limits{}, "CPUs MemoryBytes DiskBytes Processes"}, {executor.RunLimits{}, "WallTime OutputBytes"}, {executor.NetworkPolicy{}, "Mode Hosts"},
	} {
		var names []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(c.of)) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%T has %s, and Spec looks at %s", c.of, got, c.want)
		}
	}
}
