package modal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/runner"
)

// DefaultImage is the image of sessions whose configuration names none.
const DefaultImage = "docker.io/library/python:3.13-slim"

// Config is the configuration of this backend. App, TokenID and TokenSecret are required.
type Config struct {
	// App is the app of Modal that the Sandboxes belong to. It is made if it is not there, and
	// should hold nothing else.
	App string `json:"app"`
	// TokenID and TokenSecret name the two parts of a token of Modal. They are read for
	// each request, and go nowhere but to Modal.
	TokenID     driver.Secret `json:"token_id"`
	TokenSecret driver.Secret `json:"token_secret"`
	// Environment is the environment of Modal that the app is in. Default: that of the workspace.
	Environment string `json:"environment,omitempty"`
	// Generation is that of Modal's API for Sandboxes: "v1" or "v2". The SDK takes it from its own
	// environment only: "v1" needs the variable MODAL_SANDBOX_V2 with the value 0. Sandboxes with a
	// GPU are always of v1. Default: v2.
	Generation Generation `json:"generation,omitempty"`

	// Image is what sessions run in: the name of an image in a registry, which Modal builds into
	// one of its own on first use, or the ID of an image of Modal, "im-...". It needs python3 for
	// Python and node for JavaScript. Default: DefaultImage.
	Image string `json:"image,omitempty"`
	// Templates are further images by logical names. In a file the image alone stands for the
	// whole.
	Templates map[string]Template `json:"templates,omitempty"`
	// Languages are what the images can run: "python", "javascript" or both. Default: python.
	Languages []executor.Language `json:"languages,omitempty"`

	// Packages says what sessions may install, and where it comes from. The zero value: nothing but
	// what the image has. A session needs no network for it: a Sandbox of its own, of the same
	// image, with network and without anything of a user, fetches wheels or packages of npm once,
	// and what it made of them is kept in the cache directory.
	Packages driver.Packages `json:"packages,omitzero"`

	// Runtime is what runs the Sandboxes: "gvisor", or "vm" for a virtual machine each, which Modal
	// opens to some workspaces only. Under gVisor sessions have no terminals, and no limits of
	// memory, processors and processes that end only the code. Default: gvisor, whatever Modal's
	// default becomes.
	Runtime Runtime `json:"runtime,omitempty"`
	// Regions are where Sandboxes may run: "us-east", "eu". Default: Modal chooses.
	Regions []string `json:"regions,omitempty"`
	// Cloud is the cloud that they run in: "aws", "gcp", "oci". Default: Modal chooses.
	Cloud string `json:"cloud,omitempty"`

	// Limits are those of sessions that ask for none. A processor is a physical core, as Modal
	// counts. Disk cannot be limited. Default: 1 core, 512 MiB of memory and 256 processes.
	Limits Limits `json:"limits,omitzero"`
	// MaxLimits is the most that a session may ask for. Zero fields: no bound but Modal's.
	MaxLimits Limits `json:"max_limits,omitzero"`
	// Requests is the part of the limits of memory and processors that Modal keeps free for a
	// session, and that it counts as used: more than 0, at most 1. Default: 1.
	Requests float64 `json:"requests,omitempty"`

	// MaxLife is how long a sandbox lives at most, in use or not: the most that a Spec may ask for,
	// and what one gets that asks for nothing. Modal has no more than 24 hours. Default: 24 hours.
	MaxLife driver.Life `json:"max_life,omitzero"`
	// Timeout is how long a create may take, the build of an image included. A Sandbox that nobody
	// has connected to for as long ends by itself. Default: 10 minutes.
	Timeout driver.Duration `json:"timeout,omitzero"`
	// MaxThrottleWait is how long a request waits at most when Modal asks for that: whole seconds.
	// Then it fails with ErrExhausted. The time limit of the call ends it earlier. Default: 30 s.
	MaxThrottleWait driver.Duration `json:"max_throttle_wait,omitzero"`
	// Ports lets sessions ask for ports, so that this program can connect to servers in their
	// Sandboxes, through the connection that it has and by no tunnel of Modal. Default: they are
	// refused.
	Ports bool `json:"ports,omitempty"`
	// AllowWeak lets a Sandbox start in which no filter narrows what sockets code can make, because
	// the Python of its image has no ctypes, by which the runner installs one. The log says so.
	// Default: Create refuses it with ErrUnsupported.
	AllowWeak bool `json:"allow_weak,omitempty"`
}

// Generation is one of Modal's APIs for Sandboxes.
type Generation string

// The generations.
const (
	V1 Generation = "v1"
	V2 Generation = "v2"
)

// Runtime is what runs Sandboxes.
type Runtime string

// The runtimes.
const (
	GVisor Runtime = "gvisor"
	VM     Runtime = "vm"
)

// Limits are executor.Limits as configuration writes them.
type Limits = driver.Limits

// Template is an image by a logical name. Zero fields are those of Config.
type Template struct {
	Image  string `json:"image"`
	Limits Limits `json:"limits,omitzero"`
	// GPU is what the Sandbox has beside it, as Modal writes it: "T4", "A100-80GB:2". It costs as
	// long as the Sandbox lives.
	GPU string `json:"gpu,omitempty"`
	// Packages are installed before a session is there, by language, whether or not sessions may
	// install them.
	Packages map[executor.Language][]string `json:"packages,omitempty"`
}

// UnmarshalJSON takes the image alone, too.
func (t *Template) UnmarshalJSON(raw []byte) error {
	type plain Template
	return driver.DecodeShort(raw, &t.Image, (*plain)(t))
}

const (
	defaultCPUs      = 1
	defaultMemory    = 512 << 20
	defaultProcesses = 256
	minMemory        = 128 << 20
	maxMemory        = 1 << 42 // more than any machine has, and what the SDK can count
	mib              = 1 << 20
	supervisorMemory = 64 << 20 // of the supervisor and the opener, which share the limit with the code
	defaultThrottle  = 30 * time.Second
	maxLife          = 24 * time.Hour
	lifeMargin       = time.Minute // the runner's own clock is first
)

var (
	objectName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	imageID    = regexp.MustCompile(`^im-[A-Za-z0-9]{1,64}$`)
	gpuName    = regexp.MustCompile(`^[A-Za-z0-9-]{1,32}(!)?(:[1-9][0-9]?)?$`)
)

// Validate reports every mistake in c, with its path.
func (c *Config) Validate() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	if !objectName.MatchString(c.App) {
		at("app", errors.New("want the name of an app: at most 64 letters, digits, dots, hyphens and underscores"))
	}
	for _, s := range []struct {
		path, variable string
		secret         driver.Secret
	}{{"token_id", "MODAL_TOKEN_ID", c.TokenID}, {"token_secret", "MODAL_TOKEN_SECRET", c.TokenSecret}} {
		if s.secret.IsZero() {
			at(s.path, fmt.Errorf("is needed: {env: %s}; modal token new makes one", s.variable))
		}
		at(s.path, s.secret.Validate())
	}
	if c.Environment != "" && !objectName.MatchString(c.Environment) {
		at("environment", fmt.Errorf("%.40q is no name of an environment", c.Environment))
	}
	switch c.Generation {
	case "", V1, V2:
	default:
		at("generation", driver.Unknown("generation", string(c.Generation), []string{string(V1), string(V2)}))
	}
	switch c.Runtime {
	case "", GVisor, VM:
	default:
		at("runtime", driver.Unknown("runtime", string(c.Runtime), []string{string(GVisor), string(VM)}))
	}
	at("image", checkImage(c.image("")))
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		t := c.Templates[name]
		if name == "" {
			at("templates", errors.New("empty name"))
		}
		at("templates."+name+".image", checkImage(t.Image))
		at("templates."+name+".limits", c.checkLimits(t.Limits))
		if t.GPU != "" && !gpuName.MatchString(t.GPU) {
			at("templates."+name+".gpu", fmt.Errorf("want a GPU such as T4 or A100-80GB:2, not %.40q", t.GPU))
		}
		at("templates."+name+".packages", packages.CheckPreset(t.Packages))
	}
	at("languages", driver.Choices("language", c.Languages, runner.Languages))
	for i, r := range c.Regions {
		if !objectName.MatchString(r) {
			at(fmt.Sprintf("regions[%d]", i), fmt.Errorf("want a region such as us-east, not %.40q", r))
		}
	}
	if c.Cloud != "" && !objectName.MatchString(c.Cloud) {
		at("cloud", fmt.Errorf("want a cloud such as aws, not %.40q", c.Cloud))
	}
	at("limits", c.checkLimits(c.Limits))
	at("max_limits", c.checkLimits(c.MaxLimits))
	if !(c.Requests >= 0 && c.Requests <= 1) { // not a number is neither
		at("requests", errors.New("want a part of the limits: more than 0, at most 1"))
	}
	if l := c.MaxLife.Max(); l == 0 || l > maxLife {
		at("max_life", fmt.Errorf("Modal ends Sandboxes after %v", maxLife))
	}
	if c.Timeout < 0 {
		at("timeout", errors.New("negative"))
	}
	if d := time.Duration(c.MaxThrottleWait); d < 0 || d%time.Second != 0 {
		at("max_throttle_wait", errors.New("want whole seconds"))
	}
	errs = append(errs, c.sources().Validate(c.languages(), c.presets()...))
	return errors.Join(errs...)
}

func (c *Config) checkLimits(l Limits) error {
	switch {
	case l.Disk > 0:
		return errors.New("disk: Modal has no limit of it")
	case l.Processes > 0 && c.isolation() == executor.IsolationGVisor:
		return errors.New("processes: gVisor does not count them")
	}
	return l.Validate()
}

func checkImage(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }): // it becomes a line of a Dockerfile
		return fmt.Errorf("%q has characters that no image name has", name)
	case strings.HasPrefix(name, "im-") && !imageID.MatchString(name):
		return fmt.Errorf("%q is no ID of an image of Modal", name)
	}
	return nil
}

// image returns the image of a template.
func (c *Config) image(template string) string {
	if t, ok := c.Templates[template]; ok {
		return t.Image
	}
	return cmp.Or(c.Image, DefaultImage)
}

func (c *Config) languages() []executor.Language {
	if len(c.Languages) == 0 {
		return []executor.Language{executor.Python}
	}
	return c.Languages
}

func (c *Config) timeout() time.Duration { return cmp.Or(time.Duration(c.Timeout), createTimeout) }

func (c *Config) maxThrottleWait() time.Duration {
	return cmp.Or(time.Duration(c.MaxThrottleWait), defaultThrottle)
}

func (c *Config) isolation() executor.Isolation {
	if c.Runtime == VM {
		return executor.IsolationMicroVM
	}
	return executor.IsolationGVisor
}

// sources are the packages as all adapters understand them.
func (c *Config) sources() *packages.Sources { return (*packages.Sources)(&c.Packages) }

// presets are the packages of the templates.
func (c *Config) presets() (all []map[executor.Language][]string) {
	for _, t := range c.Templates {
		all = append(all, t.Packages)
	}
	return all
}

// limits returns what a session gets: what it asks for, or else what the template or the
// configuration says.
func (c *Config) limits(spec *executor.Spec) executor.Limits {
	l := spec.Limits
	for _, d := range []executor.Limits{
		c.Templates[spec.Template].Limits.Executor(), c.Limits.Executor(),
		{CPUs: defaultCPUs, MemoryBytes: defaultMemory, Processes: defaultProcesses},
	} {
		l = l.Or(d)
	}
	if c.isolation() == executor.IsolationGVisor {
		l.Processes = 0
	}
	return l
}

// size puts limits into the words of Modal. The code gets at least what was asked for.
func (c *Config) size(l executor.Limits, p *sdk.SandboxCreateParams) {
	part := cmp.Or(c.Requests, 1)
	p.CPULimit = max(l.CPUs, 0.001)
	p.CPU = max(p.CPULimit*part, 0.001)
	bytes := max(min(l.MemoryBytes, maxMemory)+supervisorMemory, minMemory)
	p.MemoryLimitMiB = int((bytes + mib - 1) / mib)
	p.MemoryMiB = int(max(1, math.Ceil(float64(p.MemoryLimitMiB)*part)))
}
