package cases

import (
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// limitCases are about the limits of sandboxes. Enforced means tried: the code goes beyond.
func limitCases() []Case {
	const (
		memory    = 256 << 20
		disk      = 16 << 20
		processes = 20
	)
	// refuses is the form for a limit that is not enforced.
	refuses := func(f executor.Feature, l executor.Limits) func(*T) {
		return refusing(string(f), func(spec *executor.Spec) { spec.Limits = l }, f)
	}
	return []Case{
		{
			ID: "limits/memory", PerLanguage: true, Feature: executor.FeatureLimitMemory, Programs: []string{"allocate", "print", "remember", "recall"}, Bound: 3 * time.Minute,
			Doc: "Code cannot take more memory than SessionInfo.Limits says, which is at least what was asked for, and trying harms only itself.",
			Positive: func(t *T) {
				s, other := limitedSession(t, executor.Limits{MemoryBytes: memory}), t.Shared()
				most := s.Info().Limits.MemoryBytes
				atLeast(t, most, memory)
				t.remembers(s)
				res := t.Run(s, limited(t.Program("allocate", "mib", 4*(most>>20)), t.longest(patient)))
				got := lastNumber(res, "allocated") << 20
				if got > most || strings.Contains(string(res.Stdout), "done") {
					t.Errorf("the code took %d MiB of memory, more than the limit of %d MiB", got>>20, most>>20)
				}
				if got < memory/8 {
					t.Errorf("the code could take %d MiB only, with a limit of %d MiB", got>>20, most>>20)
				}
				switch {
				case res.Status == executor.StatusFailed && res.Exception != nil:
				case res.Status == executor.StatusKilled && res.Reason == executor.ReasonMemory:
				default:
					t.Errorf("got %s, want an exception of the language, or killed with the reason memory", describe(res))
				}
				t.aftermath(s, res)
				t.says(other, t.Program("print", "text", "other"), "other")
			},
			Negative: refuses(executor.FeatureLimitMemory, executor.Limits{MemoryBytes: memory}),
		},
		{
			ID: "limits/disk", PerLanguage: true, Feature: executor.FeatureLimitDisk, Programs: []string{"fill-disk", "print"},
			Doc: "Code cannot write more than SessionInfo.Limits says to all the places together that it can write to, and trying harms only itself.",
			Positive: func(t *T) {
				s := limitedSession(t, executor.Limits{DiskBytes: disk})
				most := s.Info().Limits.DiskBytes
				atLeast(t, most, disk)
				res := t.Run(s, limited(t.Program("fill-disk", "mib", 4*(most>>20)), 25*time.Second))
				got := lastNumber(res, "wrote")
				if got > most {
					t.Errorf("the code wrote %d bytes, more than the limit of %d", got, most)
				}
				if got < disk/4 && t.Has(executor.FeatureFiles) {
					t.Errorf("the code could write %d bytes only, with a limit of %d", got, most)
				}
				if res.Status != executor.StatusOK && (res.Status != executor.StatusKilled || res.Reason != executor.ReasonDisk) {
					t.Errorf("got %s, want an error that the code can handle, or killed with the reason disk", describe(res))
				}
				t.says(s, t.Program("print", "text", "next"), "next")
			},
			Negative: refuses(executor.FeatureLimitDisk, executor.Limits{DiskBytes: disk}),
		},
		{
			ID: "limits/processes", PerLanguage: true, Feature: executor.FeatureLimitProcesses, Needs: []executor.Feature{executor.FeatureSubprocess},
			Programs: []string{"processes", "print"},
			Doc:      "Code cannot have more processes at a time than SessionInfo.Limits says, and trying harms only itself.",
			Positive: func(t *T) {
				s := limitedSession(t, executor.Limits{Processes: processes})
				most := s.Info().Limits.Processes
				atLeast(t, most, processes)
				res := t.Run(s, limited(t.Program("processes", "count", 3*most), 25*time.Second))
				got := lastNumber(res, "started")
				if got > int64(most) {
					t.Errorf("the code started %d processes, more than the limit of %d", got, most)
				}
				if got < 1 && res.Status == executor.StatusOK {
					t.Errorf("the code could start no process, with a limit of %d", most)
				}
				if res.Status == executor.StatusKilled && res.Reason != executor.ReasonProcesses {
					t.Errorf("got %s, want an error that the code can handle, or killed with the reason processes", describe(res))
				}
				t.says(s, t.Program("print", "text", "next"), "next")
			},
			Negative: refuses(executor.FeatureLimitProcesses, executor.Limits{Processes: processes}),
		},
		{
			ID: "limits/cpu", PerLanguage: true, Feature: executor.FeatureLimitCPU, Alone: true, Programs: []string{"burn"},
			Doc: "Code cannot use more of a processor than SessionInfo.Limits says.",
			Positive: func(t *T) {
				s := limitedSession(t, executor.Limits{CPUs: 0.25})
				most := s.Info().Limits.CPUs
				atLeast(t, most, 0.25)
				share, err := strconv.ParseFloat(t.stdout(s, t.Program("burn", "ms", 2000)), 64)
				t.must(err, "the program burn")
				// One thread cannot use more than one processor; schedulers give a period's worth
				// ahead.
				if share > most*1.5 {
					t.Errorf("the code used %v of a processor, more than the limit of %v", share, most)
				}
				t.Logf("used %v of a processor, limit %v", share, most)
			},
			Negative: refuses(executor.FeatureLimitCPU, executor.Limits{CPUs: 0.25}),
		},
	}
}

// patient is the wall time of code that takes or writes as much as it can: some machines give it
// slowly.
const patient = 100 * time.Second

// limitedSession makes a session with limits. A backend whose largest sandbox is smaller has
// nothing to show here.
func limitedSession(t *T, l executor.Limits) executor.Session {
	edit := func(spec *executor.Spec) { spec.Limits, spec.MaxRun.WallTime = l, t.longest(patient) }
	spec := t.Spec(edit)
	if missing := t.Executor().Info().Capabilities.MissingFor(spec); len(missing) > 0 {
		t.Abort("the backend has no sandbox of the size that the case needs: %q", missing)
	}
	return t.Session(edit)
}

// defaultLimits checks what a backend declares of sandboxes whose Spec sets no limits against what
// is in force in one: it has that much, and a Spec that says so gets no more.
func (t *T) defaultLimits(inForce executor.Limits, c executor.Capabilities) {
	d, spec := c.DefaultLimits, t.Spec()
	if d == (executor.Limits{}) || spec.Limits != (executor.Limits{}) || spec.Template != "" {
		return
	}
	said := t.Session(func(spec *executor.Spec) { spec.Limits = d }).Info().Limits
	defaultLimit(t, "cpus", d.CPUs, inForce.CPUs, said.CPUs)
	defaultLimit(t, "memory", d.MemoryBytes, inForce.MemoryBytes, said.MemoryBytes)
	defaultLimit(t, "disk", d.DiskBytes, inForce.DiskBytes, said.DiskBytes)
	defaultLimit(t, "processes", d.Processes, inForce.Processes, said.Processes)
}

func defaultLimit[N int | int64 | float64](t *T, name string, declared, inForce, said N) {
	if declared > inForce {
		t.Errorf("default limits: the backend declares %v for %s, and a sandbox without limits in its Spec has %v", declared, name, inForce)
	}
	if declared > 0 && said > inForce {
		t.Errorf("default limits: a Spec that sets %s to the declared %v gets %v, and one without gets %v", name, declared, said, inForce)
	}
}

// atLeast checks a limit.
func atLeast[N int | int64 | float64](t *T, got, asked N) {
	if got < asked {
		t.Errorf("got a limit of %v, want at least the %v that were asked for", got, asked)
	}
}

// lastNumber returns the number in the last line of stdout that begins with a word; 0 if there is
// none.
func lastNumber(res *executor.Result, word string) (n int64) {
	for line := range strings.Lines(string(res.Stdout)) {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			if v, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				n = v
			}
		}
	}
	return n
}
