package pyodide

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/requirement"
)

// Config is the configuration of the backend. The zero value is ready for use. Sizes are in bytes.
type Config struct {
	// RuntimeDir is a directory in which Deno, Pyodide and acorn are installed in the pinned
	// versions: one with a node_modules directory, made by `npm install deno@VERSION
	// pyodide@VERSION acorn@VERSION`. Empty: those that a package of the system has installed with
	// the program, in lib/execbroker/pyodide next to the program's directory. If there are none,
	// they are installed into the cache directory on first use, with npm, which needs Node.js and
	// the network once.
	RuntimeDir string `json:"runtime_dir,omitempty"`

	// Memory is the memory of the interpreter of a session if its Spec sets none. Default 512 MiB.
	Memory int64 `json:"memory,omitempty"`
	// MaxMemory is the largest memory that a Spec may set. Default 2 GiB; at most 4 GiB, the limit
	// of 32-bit addresses.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Disk is the total size of the files of a session if its Spec sets none. The files are in
	// memory. Default 256 MiB.
	Disk int64 `json:"disk,omitempty"`
	// MaxDisk is the largest disk size that a Spec may set. Default 1 GiB.
	MaxDisk int64 `json:"max_disk,omitempty"`

	// OSLayer says how the operating system confines the process of a session: "bubblewrap",
	// "namespaces", "none", or "auto", which means the first of these that works on this machine. A
	// layer that is set explicitly and does not work is an error. Default "auto". The declared
	// isolation is "wasm-os" with a layer. Without one it is "wasm", and "process" for JavaScript.
	OSLayer string `json:"os_layer,omitempty"`

	// MaxLife is the longest life of a sandbox, in use or not. It is the largest life that a Spec
	// may set, and the life if the Spec sets none. Default: 24 hours; "none" means no limit.
	MaxLife driver.Life `json:"max_life,omitzero"`

	// Packages sets the source of packages.
	Packages Packages `json:"packages,omitzero"`
	// Templates are lists of packages that are loaded at the start of a session, by the template
	// name in a Spec.
	Templates map[string][]string `json:"templates,omitempty"`

	// Spares is how many processes are started in advance, so that Create does not wait for one to
	// start. They are for sessions with Python and the limits Memory and Disk. The first one is
	// started when the first such session is ready, and one that is not needed for a minute ends. A
	// program that says driver.Env.OneShot has none. Default 1; 0 means none.
	Spares *int `json:"spares,omitempty"`

	// NoSnapshot starts every interpreter from the beginning instead of from a memory snapshot.
	// That takes about 0.3 s longer, and gives each session a different hash seed. With the
	// snapshot the seed is the same everywhere; random numbers are not.
	NoSnapshot bool `json:"no_snapshot,omitempty"`
}

const (
	mib = 1 << 20

	defaultMemory    = 512 * mib
	defaultMaxMemory = 2048 * mib
	defaultDisk      = 256 * mib
	defaultMaxDisk   = 1024 * mib

	minMemory  = 64 * mib // Python itself takes about half of it
	mostMemory = 4096 * mib
	minDisk    = mib

	mostSpares = 100
)

// Validate returns all errors in c, each with the name of its field.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, driver.At(field, fmt.Errorf(format, args...)))
	}
	if c.RuntimeDir != "" && !filepath.IsAbs(c.RuntimeDir) {
		bad("runtime_dir", "want an absolute path")
	}
	for _, d := range []struct{ name, dir string }{{"packages.dir", c.Packages.Dir}, {"packages.wheels", c.Packages.Wheels}} {
		if d.dir != "" && !filepath.IsAbs(d.dir) {
			bad(d.name, "want an absolute path")
		}
	}
	if u, err := url.Parse(c.Packages.BaseURL); err != nil || c.Packages.BaseURL != "" && (u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		bad("packages.base_url", "want an http or https address")
	} else if c.Packages.BaseURL != "" && c.Packages.Dir != "" {
		bad("packages.base_url", "packages.dir fetches nothing from an address; set only one of them")
	}
	for _, t := range slices.Sorted(maps.Keys(c.Templates)) {
		for i, name := range c.Templates[t] {
			if _, err := requirement.Parse(name); err != nil {
				bad(fmt.Sprintf("templates.%s[%d]", t, i), "%w", err)
			}
		}
	}
	if !slices.Contains(layers, c.OSLayer) {
		bad("os_layer", "%w", driver.Unknown("layer", c.OSLayer, layers))
	}
	for _, f := range []struct {
		name              string
		value, least, max int64
	}{
		{"memory", c.Memory, minMemory, c.MaxMemory},
		{"max_memory", c.MaxMemory, minMemory, mostMemory},
		{"disk", c.Disk, minDisk, c.MaxDisk},
		{"max_disk", c.MaxDisk, minDisk, 1 << 40},
	} {
		if f.value < f.least || f.value > f.max {
			bad(f.name, "want %d to %d bytes, got %d", f.least, f.max, f.value)
		}
	}
	if n := *c.Spares; n < 0 || n > mostSpares {
		bad("spares", "want 0 to %d, got %d", mostSpares, n)
	}
	return errors.Join(errs...)
}

// withDefaults sets unset fields. A default never exceeds a maximum that is set.
func (c Config) withDefaults() Config {
	fill := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	c.OSLayer = cmp.Or(c.OSLayer, autoLayer)
	if c.Spares == nil {
		c.Spares = new(1)
	}
	fill(&c.MaxMemory, max(defaultMaxMemory, c.Memory))
	fill(&c.Memory, min(defaultMemory, c.MaxMemory))
	fill(&c.MaxDisk, max(defaultMaxDisk, c.Disk))
	fill(&c.Disk, min(defaultDisk, c.MaxDisk))
	return c
}
