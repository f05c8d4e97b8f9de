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

// Config is what configuration says. The zero value is ready for use. Sizes are in bytes.
type Config struct {
	// RuntimeDir is a directory in which Deno, Pyodide and acorn are installed in the pinned
	// versions: one with a node_modules directory, made by `npm install deno@VERSION
	// pyodide@VERSION acorn@VERSION`. Empty: they are installed into the cache directory on first
	// use, through npm, which needs Node.js and the network that once.
	RuntimeDir string `json:"runtime_dir,omitempty"`

	// Memory is what the interpreter of a session gets if its Spec does not say. Default 512 MiB.
	Memory int64 `json:"memory,omitempty"`
	// MaxMemory is the most that a Spec may ask for. Default 2 GiB; at most 4 GiB, which is what a
	// 32-bit address reaches.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Disk is what the files of a session may have together if its Spec does not say. They are held
	// in memory. Default 256 MiB.
	Disk int64 `json:"disk,omitempty"`
	// MaxDisk is the most that a Spec may ask for. Default 1 GiB.
	MaxDisk int64 `json:"max_disk,omitempty"`

	// OSLayer says how the operating system confines the process of a session: "bubblewrap",
	// "namespaces", "none", or "auto", which is the first of these that works on this machine. One
	// that is named and does not work is refused. Default "auto". The isolation that the backend
	// declares is "wasm-os" with a layer; without it "wasm", and "process" for JavaScript.
	OSLayer string `json:"os_layer,omitempty"`

	// MaxLife is how long a sandbox lives at most, in use or not: the most that a Spec may ask for,
	// and what one gets that asks for nothing. Default: 24 hours; "none" is no bound.
	MaxLife driver.Life `json:"max_life,omitzero"`

	// Packages says where packages come from.
	Packages Packages `json:"packages,omitzero"`
	// Templates are lists of packages that are loaded ahead, by the logical names that a Spec uses.
	Templates map[string][]string `json:"templates,omitempty"`

	// NoSnapshot starts every interpreter from the beginning instead of from a memory snapshot. It
	// takes about 0.3 s longer, and gives each session a hash seed of its own. With the snapshot
	// the seed is the same everywhere; random numbers are not.
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
)

// Validate reports every mistake in c, each with the name of its field.
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
		bad("packages.base_url", "nothing is fetched with packages.dir; set one of them")
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
	return errors.Join(errs...)
}

// withDefaults fills in what is not said. A default never exceeds the maximum that is said.
func (c Config) withDefaults() Config {
	fill := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	c.OSLayer = cmp.Or(c.OSLayer, autoLayer)
	fill(&c.MaxMemory, max(defaultMaxMemory, c.Memory))
	fill(&c.Memory, min(defaultMemory, c.MaxMemory))
	fill(&c.MaxDisk, max(defaultMaxDisk, c.Disk))
	fill(&c.Disk, min(defaultDisk, c.MaxDisk))
	return c
}
