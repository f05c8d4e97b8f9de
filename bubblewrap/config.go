package bubblewrap

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Config is what configuration says. The zero value runs the Python of this machine.
type Config struct {
	// Root is the root directory of sandboxes: a tree with python3, and node for JavaScript, that
	// every user can read, below directories that every user can enter. It is read-only. Empty:
	// /usr of this machine and the links into it, and of /etc the linker cache, the alternatives,
	// the time zone and the certificates.
	Root string `json:"root,omitempty"`
	// Templates are further roots by logical names. In a file the directory alone stands for the
	// whole.
	Templates map[string]Template `json:"templates,omitempty"`
	// Languages are what the roots can run: "python", "javascript" or both. Default: python. Create
	// refuses a language whose interpreter the root turns out to lack.
	Languages []executor.Language `json:"languages,omitempty"`

	// Ports lets sessions ask for ports, so that this program can connect to servers in their
	// sandboxes. Default: they are refused.
	Ports bool `json:"ports,omitempty"`

	// Limits are those of sessions that ask for none. Defaults: 1 CPU, 512 MiB of memory, 256 MiB
	// of disk, 128 processes. Without a control group there is only the limit of disk.
	Limits Limits `json:"limits,omitzero"`
	// MaxLimits is the most that a session may ask for. Zero fields: no bound but the machine's.
	MaxLimits Limits `json:"max_limits,omitzero"`

	// Cgroup is the directory of a control group that this program may make others in: with version
	// 1 its path below the mount of each controller, with version 2 the whole path. Empty: the
	// group of this program or one above it. "none": memory, processes and CPU are not limited.
	Cgroup string `json:"cgroup,omitempty"`

	// AllowWeak lets sandboxes run as the user of this program where it may not use any other: it
	// is not root and has no range of subordinate users. Code then has the user of its supervisor,
	// which it can end and speak for, and what reaches files of this machine has the rights of this
	// program. The log says so. Default: Create refuses it with ErrUnsupported.
	AllowWeak bool `json:"allow_weak,omitempty"`

	// AllowCodeFilters lets code install filters of system calls, as the sandboxes of browsers do.
	// The kernel compiles them into memory of the whole machine, of which some sandboxes can take
	// all: then no other sandbox can be made there. Default: code finds a kernel without such
	// filters.
	AllowCodeFilters bool `json:"allow_code_filters,omitempty"`

	// MaxLife is how long a sandbox lives at most, in use or not: the most that a Spec may ask for,
	// and what one gets that asks for nothing. Default: 24 hours; "none" is no bound.
	MaxLife driver.Life `json:"max_life,omitzero"`
}

// Template is a root by a logical name. Zero fields are those of Config.
type Template struct {
	Root   string `json:"root,omitempty"`
	Limits Limits `json:"limits,omitzero"`
}

// UnmarshalJSON takes the directory alone, too.
func (t *Template) UnmarshalJSON(raw []byte) error {
	type plain Template
	return driver.DecodeShort(raw, &t.Root, (*plain)(t))
}

// Limits are executor.Limits as configuration writes them.
type Limits = driver.Limits

// Size is a number of bytes that configuration writes as a number or as "512MiB".
type Size = driver.Size

// needsCgroup reports whether l has a limit that only a control group keeps.
func needsCgroup(l Limits) bool { return l.CPUs > 0 || l.Memory > 0 || l.Processes > 0 }

// noCgroup is the Cgroup of configurations that want none.
const noCgroup = "none"

// Validate reports every mistake in c, with its path.
func (c *Config) Validate() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	limits := func(path string, l Limits) {
		at(path, l.Validate())
		if c.Cgroup == noCgroup && needsCgroup(l) {
			at(path, errors.New("cpus, memory and processes need a control group, and cgroup is none"))
		}
	}
	at("root", checkPath(c.Root))
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		if name == "" {
			at("templates", errors.New("empty name"))
		}
		at("templates."+name+".root", checkPath(c.Templates[name].Root))
		limits("templates."+name+".limits", c.Templates[name].Limits)
	}
	at("languages", driver.Choices("language", c.Languages, runner.Languages))
	limits("limits", c.Limits)
	limits("max_limits", c.MaxLimits)
	if c.Cgroup != noCgroup {
		at("cgroup", checkPath(c.Cgroup))
	}
	return errors.Join(errs...)
}

// checkPath refuses paths that depend on where this program was started.
func checkPath(name string) error {
	switch {
	case name == "":
		return nil
	case !filepath.IsAbs(name) || filepath.Clean(name) != name:
		return errors.New("want an absolute path without . and ..")
	case name == "/":
		return errors.New("/ has the files and sockets of everybody; name a tree of its own, or nothing")
	}
	return nil
}

// root returns the root of a template.
func (c *Config) root(template string) string {
	return cmp.Or(c.Templates[template].Root, c.Root)
}

func (c *Config) languages() []executor.Language {
	if len(c.Languages) == 0 {
		return []executor.Language{executor.Python}
	}
	return c.Languages
}

// The limits of sessions whose configuration has none.
const (
	defaultCPUs      = 1
	defaultMemory    = 512 << 20
	defaultDisk      = 256 << 20
	defaultProcesses = 128

	maxBytes = 1 << 50 // more than any machine has, and sums of it still fit
)

// limits returns what a session gets: what it asks for, or else what the template or the
// configuration says. Without a control group that is the disk alone.
func (c *Config) limits(spec *executor.Spec, limited bool, cpus int) executor.Limits {
	l := spec.Limits
	for _, d := range []executor.Limits{
		c.Templates[spec.Template].Limits.Executor(), c.Limits.Executor(),
		{CPUs: min(defaultCPUs, float64(cpus)), MemoryBytes: defaultMemory, DiskBytes: defaultDisk, Processes: defaultProcesses},
	} {
		l = l.Or(d)
	}
	if !limited {
		return executor.Limits{DiskBytes: min(l.DiskBytes, maxBytes)}
	}
	l.MemoryBytes, l.DiskBytes = min(l.MemoryBytes, maxBytes), min(l.DiskBytes, maxBytes)
	return l
}
