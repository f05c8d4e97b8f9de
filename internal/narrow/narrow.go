// Package narrow applies what a client asks for in a field of its request. Such a field narrows
// what the operator has configured, and never widens it. Every server asks here, for every limit.
package narrow

import (
	"fmt"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// Ask is what a request asks for. Zero fields ask for nothing.
type Ask struct {
	Limits  executor.Limits
	Run     executor.RunLimits
	Network *executor.NetworkPolicy // nil: none is asked for
}

// ExcessError says that a request asks for more than the operator gives.
type ExcessError struct {
	Field string  // cpus, memory, disk, processes, wall time, output or network
	Most  float64 // that it may ask for, in the unit of the limit; zero: not known, or the network
}

// Error says what the client can do.
func (e *ExcessError) Error() string {
	switch {
	case e.Field == "network":
		return "network: the request asks for more than the sandboxes of this server reach; leave it out"
	case e.Most == 0:
		return e.Field + ": this server does not know how much its sandboxes have, so no request can ask for less; leave it out"
	}
	return fmt.Sprintf("%s: the request asks for more than the sandboxes of this server have; at most %v", e.Field, e.Most)
}

// Spec returns s with what a request asks for, over a backend with the capabilities c. Run limits
// are those of requests, so they are only checked. If the request asks for more than s gives, the
// error is an ExcessError. A field whose limit is not known is such an error, too, because any
// value might be more.
func Spec(s executor.Spec, c executor.Capabilities, a Ask) (executor.Spec, error) {
	given := s.Limits
	if s.Template == "" { // DefaultLimits are those of the default template
		given = given.Or(c.DefaultLimits)
	}
	_, run := s.Bounds()
	p, err := network(s.Network, a.Network)
	for _, e := range []*ExcessError{
		lower("cpus", &s.Limits.CPUs, given.CPUs, a.Limits.CPUs),
		lower("memory", &s.Limits.MemoryBytes, given.MemoryBytes, a.Limits.MemoryBytes),
		lower("disk", &s.Limits.DiskBytes, given.DiskBytes, a.Limits.DiskBytes),
		lower("processes", &s.Limits.Processes, given.Processes, a.Limits.Processes),
		bound("wall time", a.Run.WallTime, run.WallTime, c.MaxRun.WallTime),
		bound("output", a.Run.OutputBytes, run.OutputBytes, c.MaxRun.OutputBytes),
		err,
	} {
		if e != nil {
			return executor.Spec{}, e
		}
	}
	s.Network = p
	return s, nil
}

type number interface{ ~int | ~int64 | ~float64 }

// lower sets a limit to what is asked for, unless that is more than what is given. A negative limit
// or one that is not a number would be no limit.
func lower[T number](field string, limit *T, given, asked T) *ExcessError {
	switch {
	case asked == 0:
		return nil
	case !(asked > 0 && asked <= given):
		return &ExcessError{field, float64(max(given, 0))}
	}
	*limit = asked
	return nil
}

// bound checks a limit of a run against those that are above zero. A negative one asks for no
// limit.
func bound[T number](field string, asked T, ceilings ...T) *ExcessError {
	for _, most := range ceilings {
		if most > 0 && (asked < 0 || asked > most) {
			return &ExcessError{field, float64(most)}
		}
	}
	return nil
}

// network returns the narrower one of two policies.
func network(given executor.NetworkPolicy, asked *executor.NetworkPolicy) (executor.NetworkPolicy, *ExcessError) {
	if asked == nil {
		return given, nil
	}
	switch {
	case asked.Mode == "" || asked.Mode == executor.NetworkNone, given.Mode == executor.NetworkFull:
		return *asked, nil
	case given.Mode == executor.NetworkAllowlist && asked.Mode == executor.NetworkAllowlist &&
		!slices.ContainsFunc(asked.Hosts, func(h string) bool { return !slices.Contains(given.Hosts, h) }):
		return *asked, nil
	}
	return given, &ExcessError{Field: "network"}
}
