package executor

import (
	"fmt"
	"slices"
	"time"
)

// Isolation names the strongest boundary between the code and the host. The levels are only
// partially ordered: a container and WebAssembly keep out different attacks.
type Isolation string

// The isolation levels.
const (
	IsolationProcess   Isolation = "process"
	IsolationWasm      Isolation = "wasm"    // WebAssembly in an ordinary process
	IsolationWasmOS    Isolation = "wasm-os" // WebAssembly, or an engine without any permission, in a process that the operating system confines
	IsolationContainer Isolation = "container"
	IsolationGVisor    Isolation = "gvisor" // container on a kernel in user space
	IsolationMicroVM   Isolation = "microvm"
)

// isolations maps each level to the other levels that it is at least as strong as.
var isolations = map[Isolation][]Isolation{
	IsolationProcess:   nil,
	IsolationWasm:      {IsolationProcess},
	IsolationContainer: {IsolationProcess},
	IsolationWasmOS:    {IsolationProcess, IsolationWasm, IsolationContainer},
	IsolationGVisor:    {IsolationProcess, IsolationContainer},
	IsolationMicroVM:   {IsolationProcess, IsolationWasm, IsolationContainer, IsolationWasmOS, IsolationGVisor},
}

// AtLeast reports whether i is at least as strong as min. Every level satisfies an empty min.
func (i Isolation) AtLeast(min Isolation) bool {
	return min == "" || i == min || slices.Contains(isolations[i], min)
}

// Capabilities says what a backend or a session can do. It is plain data: it can be logged,
// compared, put in a report and used for routing. The capabilities of a session list only its own
// languages, so that Has is exact.
type Capabilities struct {
	Features  []Feature `json:"features"`            // those that are not PerLanguage; every session has all of them
	Varies    []Feature `json:"varies,omitempty"`    // only some sessions have them: see Session.Info. Set by routers only
	Languages []Runtime `json:"languages"`           // the first is the default
	Templates []string  `json:"templates,omitempty"` // in addition to the default one
	Isolation Isolation `json:"isolation"`
	MaxLimits Limits    `json:"max_limits,omitzero"` // zero fields: no known bound
	// DefaultLimits are the limits of sandboxes of the default template whose Spec sets none: a
	// Spec with them gets the same sandbox. A zero field is not known, or there is no limit.
	DefaultLimits Limits        `json:"default_limits,omitzero"`
	MaxRun        RunLimits     `json:"max_run,omitzero"`      // likewise; a MaxRun.WallTime excludes NoLimit
	MaxLife       time.Duration `json:"max_life_ns,omitempty"` // likewise; the longest life of a sandbox, whether it is in use or not
}

// Runtime describes one language of a backend.
type Runtime struct {
	Language Language  `json:"language"`
	Version  string    `json:"version,omitempty"`
	Features []Feature `json:"features"`         // those that are PerLanguage
	Varies   []Feature `json:"varies,omitempty"` // only some sessions have them. Set by routers only: if a backend lacks the language, all its features are here
	// Isolation is the isolation of sessions with this language, if that is weaker than
	// Capabilities.Isolation. Empty means that it is not weaker.
	Isolation Isolation `json:"isolation,omitempty"`
}

// Runtime returns the entry of a language. The empty language is the first one. With
// FeatureTypeScript, JavaScript and TypeScript share one entry, which is returned under the name
// that was asked for.
func (c Capabilities) Runtime(l Language) (Runtime, bool) {
	for _, r := range c.Languages {
		if l == "" || r.Language == l {
			return r, true
		}
	}
	if (l == JavaScript || l == TypeScript) && c.Has(FeatureTypeScript) {
		for _, r := range c.Languages {
			if r.Language == JavaScript || r.Language == TypeScript {
				r.Language = l
				return r, true
			}
		}
	}
	return Runtime{Language: l}, false
}

// Interpreter returns the language whose interpreter runs l: JavaScript for TypeScript with
// FeatureTypeScript, otherwise l itself.
func (c Capabilities) Interpreter(l Language) Language {
	if l == TypeScript && c.Has(FeatureTypeScript) {
		return JavaScript
	}
	return l
}

// Interpreters returns the languages whose interpreters run ls, each once.
func (c Capabilities) Interpreters(ls []Language) (known []Language) {
	for _, l := range ls {
		if l = c.Interpreter(l); !slices.Contains(known, l) {
			known = append(known, l)
		}
	}
	return known
}

// Has reports whether c has f. A PerLanguage feature must be there in every language.
func (c Capabilities) Has(f Feature) bool {
	if i, _ := f.Info(); !i.PerLanguage {
		return slices.Contains(c.Features, f)
	}
	return len(c.Languages) > 0 && !slices.ContainsFunc(c.Languages, func(r Runtime) bool { return !slices.Contains(r.Features, f) })
}

// HasFor reports whether c has f for code in language l.
func (c Capabilities) HasFor(l Language, f Feature) bool {
	if i, _ := f.Info(); !i.PerLanguage {
		return c.Has(f)
	}
	r, ok := c.Runtime(l)
	return ok && slices.Contains(r.Features, f)
}

// For returns the capabilities of a session with the given languages: Languages has only these, in
// this order, and Isolation is the weakest of theirs. Without arguments it means the first
// language.
func (c Capabilities) For(languages ...Language) Capabilities {
	if len(languages) == 0 {
		languages = []Language{""}
	}
	all := c
	c.Languages, c.Isolation = nil, c.isolation(languages)
	for _, l := range languages {
		if r, ok := all.Runtime(l); ok {
			c.Languages = append(c.Languages, r)
		}
	}
	return c
}

// isolation returns the weakest isolation of some languages.
func (c *Capabilities) isolation(languages []Language) Isolation {
	weakest := c.Isolation
	for _, l := range languages {
		if r, ok := c.Runtime(l); ok && r.Isolation != "" && weakest.AtLeast(r.Isolation) {
			weakest = r.Isolation
		}
	}
	return weakest
}

// MissingFor returns what c lacks to satisfy s. It is the only mapping from the fields of a Spec to
// requirements: backends refuse by it, routers choose by it, and the conformance suite derives its
// negative cases from it. Each string is a feature ("command"), a feature of a language
// ("stdin:javascript"), or a requirement with its value: "language:r", "template:x",
// "memory<=2147483648", "isolation>=microvm".
func (c Capabilities) MissingFor(s Spec) (missing []string) {
	need := needs{c: c}
	langs := s.Languages
	if len(langs) == 0 && len(c.Languages) > 0 {
		langs = []Language{c.Languages[0].Language}
	}
	for _, l := range langs {
		need.language(l)
		if len(s.Env) > 0 {
			need.featureOf(l, FeatureEnv)
		}
		for _, f := range s.Require {
			if i, _ := f.Info(); i.PerLanguage {
				need.featureOf(l, f)
			}
		}
	}
	for _, p := range s.Packages {
		l := p.Language
		if l == "" && len(langs) > 0 {
			l = langs[0]
		}
		need.language(l)
		need.featureOf(l, FeaturePackages)
	}
	for _, f := range s.Require {
		if i, _ := f.Info(); !i.PerLanguage {
			need.feature(f)
		}
	}
	if slices.ContainsFunc(s.Languages, func(l Language) bool { return c.Interpreter(l) != c.Interpreter(s.Languages[0]) }) {
		need.feature(FeatureMixedLanguages)
	}
	if len(s.Aliases) > 0 {
		need.feature(FeatureAliases)
	}
	if s.Ports {
		need.feature(FeaturePorts)
	}
	if s.Template != "" && !slices.Contains(c.Templates, s.Template) {
		need.add("template:" + s.Template)
	}
	l, m := s.Limits, c.MaxLimits
	limit(&need, FeatureLimitCPU, "cpus", l.CPUs, m.CPUs)
	limit(&need, FeatureLimitMemory, "memory", l.MemoryBytes, m.MemoryBytes)
	limit(&need, FeatureLimitDisk, "disk", l.DiskBytes, m.DiskBytes)
	limit(&need, FeatureLimitProcesses, "processes", l.Processes, m.Processes)
	run, maxRun := s.Bounds()
	need.add(run.Exceeds(c.MaxRun)...)
	need.add(maxRun.Exceeds(c.MaxRun)...)
	switch s.Network.Mode {
	case NetworkAllowlist:
		need.feature(FeatureNetworkAllowlist)
	case NetworkFull:
		need.feature(FeatureNetworkFull)
	default:
		need.feature(FeatureNetworkNone)
	}
	if c.MaxLife > 0 && s.MaxLife > c.MaxLife {
		need.add(fmt.Sprintf("max-life<=%v", c.MaxLife))
	}
	if c.MaxLife > 0 && s.IdleTTL > c.MaxLife {
		need.add(fmt.Sprintf("idle-ttl<=%v", c.MaxLife))
	}
	if !c.isolation(langs).AtLeast(s.MinIsolation) {
		need.add("isolation>=" + string(s.MinIsolation))
	}
	return need.missing
}

// MissingForRequest is MissingFor for a request to a session with the capabilities c.
func (c Capabilities) MissingForRequest(r Request) (missing []string) {
	need := needs{c: c}
	if len(r.Command) > 0 {
		need.feature(FeatureCommand)
		if r.Terminal != nil {
			need.feature(FeaturePTY)
		}
		return need.missing
	}
	need.feature(FeatureCode)
	l := r.Language
	if l == "" && len(c.Languages) > 0 {
		l = c.Languages[0].Language
	}
	if !need.language(l) {
		return need.missing
	}
	for _, n := range []struct {
		asked bool
		f     Feature
	}{
		{r.Context != "", FeatureContexts},
		{r.Stdin != nil, FeatureStdin},
		{len(r.Env) > 0, FeatureEnv},
		{r.Dir != "", FeatureDir},
		{r.Artifacts != nil, FeatureArtifacts},
		{r.Linger != nil && *r.Linger > 0, FeatureLinger},
	} {
		if n.asked {
			need.featureOf(l, n.f)
		}
	}
	return need.missing
}

// needs collects what c lacks.
type needs struct {
	c       Capabilities
	missing []string
}

func (n *needs) add(words ...string) {
	for _, w := range words {
		if !slices.Contains(n.missing, w) {
			n.missing = append(n.missing, w)
		}
	}
}

func (n *needs) feature(f Feature) {
	if !n.c.Has(f) {
		n.add(string(f))
	}
}

func (n *needs) featureOf(l Language, f Feature) {
	if _, ok := n.c.Runtime(l); ok && !n.c.HasFor(l, f) {
		n.add(string(f) + ":" + string(l))
	}
}

func (n *needs) language(l Language) bool {
	_, ok := n.c.Runtime(l)
	if !ok {
		n.add("language:" + string(l))
	}
	return ok
}

func limit[T int | int64 | float64](n *needs, f Feature, name string, want, most T) {
	if want > 0 {
		n.feature(f)
	}
	if most > 0 && want > most {
		n.add(fmt.Sprintf("%s<=%v", name, most))
	}
}
