package router

import (
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Info describes the router. Its capabilities are those that all backends have; Varies lists those
// that only some have. Isolation is the weakest one, and the bounds are the smallest ones.
func (r *Router) Info() executor.Info {
	return executor.Info{Name: r.name, Type: "router", Capabilities: r.caps}
}

// common returns the capabilities that all of the backends have.
func common(all []executor.Capabilities) executor.Capabilities {
	first := all[0]
	out := executor.Capabilities{
		Isolation: first.Isolation, MaxLimits: first.MaxLimits, DefaultLimits: first.DefaultLimits, MaxRun: first.MaxRun, MaxLife: first.MaxLife,
	}
	var sets [][]executor.Feature
	for _, c := range all {
		sets = append(sets, c.Features)
		out.Isolation = weaker(out.Isolation, c.Isolation)
		m, l := &out.MaxLimits, c.MaxLimits
		m.CPUs, m.MemoryBytes = smaller(m.CPUs, l.CPUs), smaller(m.MemoryBytes, l.MemoryBytes)
		m.DiskBytes, m.Processes = smaller(m.DiskBytes, l.DiskBytes), smaller(m.Processes, l.Processes)
		d, l := &out.DefaultLimits, c.DefaultLimits // known only if every backend knows it
		d.CPUs, d.MemoryBytes = min(d.CPUs, l.CPUs), min(d.MemoryBytes, l.MemoryBytes)
		d.DiskBytes, d.Processes = min(d.DiskBytes, l.DiskBytes), min(d.Processes, l.Processes)
		out.MaxRun.WallTime = smaller(out.MaxRun.WallTime, c.MaxRun.WallTime)
		out.MaxRun.OutputBytes = smaller(out.MaxRun.OutputBytes, c.MaxRun.OutputBytes)
		out.MaxLife = smaller[time.Duration](out.MaxLife, c.MaxLife)
	}
	out.Features, out.Varies = split(sets)
	for _, t := range first.Templates {
		if !slices.ContainsFunc(all, func(c executor.Capabilities) bool { return !slices.Contains(c.Templates, t) }) {
			out.Templates = append(out.Templates, t)
		}
	}
	for _, c := range all {
		for _, rt := range c.Languages {
			if !slices.ContainsFunc(out.Languages, func(r executor.Runtime) bool { return r.Language == rt.Language }) {
				l := language(rt.Language, all)
				if l.Isolation.AtLeast(out.Isolation) {
					l.Isolation = "" // not weaker than that of the router
				}
				out.Languages = append(out.Languages, l)
			}
		}
	}
	return out
}

// language returns the entry of a language that at least one backend has.
func language(l executor.Language, all []executor.Capabilities) executor.Runtime {
	out := executor.Runtime{Language: l}
	var sets [][]executor.Feature
	everywhere, version := true, ""
	for _, c := range all {
		rt, ok := c.Runtime(l)
		if !ok {
			everywhere = false
			continue
		}
		if isolation := c.For(l).Isolation; len(sets) == 0 {
			version, out.Isolation = rt.Version, isolation
		} else {
			if version != rt.Version {
				version = ""
			}
			out.Isolation = weaker(out.Isolation, isolation)
		}
		sets = append(sets, rt.Features)
	}
	out.Version = version
	out.Features, out.Varies = split(sets)
	if !everywhere {
		out.Features, out.Varies = nil, append(out.Features, out.Varies...)
	}
	return out
}

// split separates the features that are in every set from those that are only in some.
func split(sets [][]executor.Feature) (every, some []executor.Feature) {
	every = []executor.Feature{}
	for _, i := range executor.Features() {
		n := 0
		for _, s := range sets {
			if slices.Contains(s, i.Feature) {
				n++
			}
		}
		switch {
		case n == len(sets):
			every = append(every, i.Feature)
		case n > 0:
			some = append(some, i.Feature)
		}
	}
	return every, some
}

// weaker returns the weaker of two levels. If neither is weaker, it returns the lowest level.
func weaker(a, b executor.Isolation) executor.Isolation {
	switch {
	case a.AtLeast(b):
		return b
	case b.AtLeast(a):
		return a
	}
	return executor.IsolationProcess
}

// smaller returns the smaller bound. Zero means no bound.
func smaller[T int | int64 | float64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
