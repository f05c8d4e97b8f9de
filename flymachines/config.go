package flymachines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// DefaultImage is the image of sessions whose configuration names none: an official one, by its
// full name.
const DefaultImage = "docker.io/library/python:3.13-slim"

// The addresses of the Machines API.
const (
	PublicAPI  = "https://api.machines.dev"
	PrivateAPI = "http://_api.internal:4280" // from the private network of an organization
)

// Config is the configuration of this backend. App and Token are required.
type Config struct {
	// App is the app that the Machines belong to. It should hold nothing else: no secrets, which
	// Fly would put into every Machine, and a network of its own, in which nothing else is reached.
	App string `json:"app"`
	// Token names a token for that app, as fly tokens create deploy makes it. It is read for each
	// request and never leaves this process.
	Token driver.Secret `json:"token"`
	// Key is what the secrets of sandboxes are made of, with the ID of each: at least 32
	// characters. Programs that attach to each other's sessions need the same, and so does one that
	// attaches after Token was renewed. Default: Token.
	Key driver.Secret `json:"key,omitzero"`
	// API is the address of the Machines API. Default: PublicAPI.
	API string `json:"api,omitempty"`

	// Image is what sessions run in. It needs python3 for Python and node for JavaScript. A digest
	// makes it the same everywhere. Default: DefaultImage.
	Image string `json:"image,omitempty"`
	// Runner says how the runner gets into the Machine: "files" sends a first part of 33 KB along
	// with each create, and the rest to the Machine itself, whatever it grows to; "image" says that
	// every image has it at RunnerPath, as flymachines/image/Dockerfile puts it there. Default:
	// "files", unless those of Machine leave no room for it or Fly refuses them as too large; then
	// "image".
	Runner RunnerIn `json:"runner,omitempty"`
	// Templates are further images by logical names. In a file the image alone stands for the
	// whole.
	Templates map[string]Template `json:"templates,omitempty"`
	// Languages are what the images can run: "python", "javascript" or both. Default: python.
	Languages []executor.Language `json:"languages,omitempty"`

	// Packages says what sessions may install, and where it comes from. The zero value: nothing but
	// what the image has. A session needs no network for it: a Machine of its own, of the same
	// image, with network and without anything of a user, fetches wheels or packages of npm once,
	// and what it made of them is kept in the cache directory.
	Packages driver.Packages `json:"packages,omitzero"`

	// Regions are tried in this order, each when the one before has no capacity or quota left:
	// "fra", or what Fly takes, such as "eu". Default: Fly chooses.
	Regions []string `json:"regions,omitempty"`
	// Guest is the size of sessions that ask for none. Default: two shared CPUs and 512 MB.
	Guest Guest `json:"guest,omitzero"`
	// Processes is how many processes and threads the code of a session may have that asks for no
	// limit. Default: 256.
	Processes int `json:"processes,omitempty"`

	// Proxy is the public address of the app, "https://my-app.fly.dev", for programs that are
	// outside of Fly's private network: requests then go through the Fly Proxy, with
	// fly-force-instance-id. "http://my-app.flycast" is the same for programs in another private
	// network of Fly than the app, in which the app has a Flycast address. Empty: directly to the
	// private address of the Machine.
	Proxy string `json:"proxy,omitempty"`
	// Port is where the runner listens. Default: 8731.
	Port int `json:"port,omitempty"`
	// Dial, if not nil, connects to the private addresses of Machines, or to Proxy: through
	// WireGuard, for example.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`

	// Machine is the configuration of Machines in Fly's own words, to which everything else here is
	// added. A field that fly-go does not know is a mistake, and so is one that the adapter sets.
	Machine json.RawMessage `json:"machine,omitempty"`

	// MaxLife is how long a sandbox lives at most, in use or not: the most that a Spec may ask for,
	// and what one gets that asks for nothing. Default: 24 hours; "none" is no bound.
	MaxLife driver.Life `json:"max_life,omitzero"`
	// Timeout is how long a create may take, the pull of an image included. A Machine that nobody
	// has set up as long after it has started ends by itself: its program has died during the
	// create. Default: 5 minutes.
	Timeout driver.Duration `json:"timeout,omitzero"`
	// Ports lets sessions ask for ports, so that this program can connect to servers in their
	// Machines, through the connection that it has and by no service of Fly. Default: they are
	// refused.
	Ports bool `json:"ports,omitempty"`
	// AllowWeak lets a Machine start in which no filter narrows what sockets code can make, because
	// the Python of its image has no ctypes, by which the runner installs one. Then code may reach
	// the host of the Machine over VSOCK. The log says so. Default: Create refuses it with
	// ErrUnsupported.
	AllowWeak bool `json:"allow_weak,omitempty"`
	// Rate multiplies the rates at which the Machines API is called, which are those of Fly's
	// documentation: one request a second for each action and Machine, or app; five for reading a
	// Machine. Default: 1.
	Rate float64 `json:"rate,omitempty"`
}

// RunnerIn says where the runner comes from.
type RunnerIn string

// The ways of the runner into a Machine.
const (
	RunnerFiles RunnerIn = "files"
	RunnerImage RunnerIn = "image"
)

// RunnerPath is where an image has the runner that was baked in.
const RunnerPath = "/opt/execbroker/runner"

// Guest is the size of a Machine.
type Guest struct {
	// Kind is "shared" or "performance". A shared CPU is throttled to a sixteenth when a burst of
	// some seconds is used up. Default: shared.
	Kind string `json:"kind,omitempty"`
	CPUs int    `json:"cpus,omitempty"`
	// MemoryMB is in MiB, as Fly counts. It is rounded up to what Fly offers.
	MemoryMB int `json:"memory_mb,omitempty"`
}

// Template is an image by a logical name. Zero fields are those of Config.
type Template struct {
	Image string `json:"image"`
	Guest Guest  `json:"guest,omitzero"`
}

// UnmarshalJSON takes the image alone, too.
func (t *Template) UnmarshalJSON(raw []byte) error {
	type plain Template
	return driver.DecodeShort(raw, &t.Image, (*plain)(t))
}

const (
	defaultPort      = 8731
	defaultProcesses = 256
)

var (
	appName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	region  = regexp.MustCompile(`^[a-z]{2,4}$`)
)

// Validate reports every mistake in c, with its path.
func (c *Config) Validate() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	if !appName.MatchString(c.App) {
		at("app", errors.New("want the name of an app: letters, digits and hyphens"))
	}
	if c.Token.IsZero() {
		at("token", errors.New("is needed: {env: FLY_API_TOKEN}; fly tokens create deploy makes one"))
	}
	at("token", c.Token.Validate())
	at("key", c.Key.Validate())
	at("api", checkAddress(cmp.Or(c.API, PublicAPI)))
	if c.Proxy != "" {
		at("proxy", checkAddress(c.Proxy))
		if c.flycast() && !strings.HasPrefix(c.Proxy, "http:") {
			at("proxy", errors.New("Flycast has no certificates; use http, which the private network encrypts"))
		}
	}
	at("image", checkImage(c.image("")))
	if c.Runner != "" && c.Runner != RunnerFiles && c.Runner != RunnerImage {
		at("runner", driver.Unknown("way", string(c.Runner), []string{string(RunnerFiles), string(RunnerImage)}))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		if name == "" {
			at("templates", errors.New("empty name"))
		}
		at("templates."+name+".image", checkImage(c.Templates[name].Image))
		at("templates."+name+".guest", c.Templates[name].Guest.check())
	}
	at("languages", driver.Choices("language", c.Languages, runner.Languages))
	errs = append(errs, c.sources().Validate(c.languages()))
	for i, r := range c.Regions {
		if !region.MatchString(r) {
			at(fmt.Sprintf("regions[%d]", i), fmt.Errorf("want a region such as fra, or any, not %.40q", r))
		}
	}
	at("guest", c.Guest.check())
	if c.Processes < 0 {
		at("processes", errors.New("negative"))
	}
	if c.Port < 0 || c.Port > 65535 {
		at("port", errors.New("is none"))
	}
	if c.Timeout < 0 {
		at("timeout", errors.New("negative"))
	}
	if c.Rate < 0 {
		at("rate", errors.New("negative"))
	}
	_, err := c.base()
	at("machine", err)
	return errors.Join(errs...)
}

// checkAddress refuses addresses over which others could read the token or the secrets of Machines.
// Http is allowed within Fly's private network, which is encrypted, and on this machine.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("want an address such as " + PublicAPI)
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return driver.Unknown("scheme", u.Scheme, []string{"https", "http"})
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	if host == "localhost" || strings.HasSuffix(host, ".internal") || strings.HasSuffix(host, ".flycast") || ip != nil && (ip.IsLoopback() || ip.IsPrivate()) {
		return nil
	}
	return errors.New("http would show the token to everybody on the way; use https")
}

func checkImage(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%q has characters that no image name has", name)
	}
	registry, rest, ok := strings.Cut(name, "/")
	if ok && strings.ContainsAny(registry, ".:") && rest != "" {
		return nil
	}
	full := "docker.io/library/" + name
	if ok {
		full = "docker.io/" + name
	}
	return fmt.Errorf("%q has no registry; write %q if that is meant", name, full)
}

// owned are the fields of a Machine's configuration that the adapter sets, and what to use instead.
var owned = map[string]string{
	"image": "image", "guest": "guest", "init": "runner", "size": "guest", "auto_destroy": "", "restart": "", "schedule": "",
	"stop_config": "", "processes": "", "containers": "", "standbys": "",
}

// base decodes Config.Machine.
func (c *Config) base() (*fly.MachineConfig, error) {
	m := new(fly.MachineConfig)
	if len(c.Machine) == 0 {
		return m, nil
	}
	if err := driver.DecodeStrict(c.Machine, m); err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Machine, &fields); err != nil {
		return nil, err
	}
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		instead, ok := owned[k]
		switch {
		case ok && instead != "":
			errs = append(errs, driver.At(k, fmt.Errorf("is set by %s beside machine", instead)))
		case ok:
			errs = append(errs, driver.At(k, errors.New("is the adapter's: a session is one process that ends with its Machine")))
		}
	}
	for k := range m.Metadata {
		if strings.HasPrefix(k, metadataPrefix) {
			errs = append(errs, driver.At("metadata."+k, errors.New("the prefix is the adapter's")))
		}
	}
	most, beside := maxFiles, ""
	if c.Runner == RunnerFiles {
		most, beside = room(), ", which are left beside the runner"
	}
	if size := sizeOf(m.Files); size > most {
		errs = append(errs, driver.At("files", fmt.Errorf("%d bytes in base64 are more than %d%s: put them into the image", size, most, beside)))
	}
	return m, errors.Join(errs...)
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

func (c *Config) templates() []string { return slices.Sorted(maps.Keys(c.Templates)) }

func (c *Config) port() int { return cmp.Or(c.Port, defaultPort) }

func (c *Config) timeout() time.Duration { return cmp.Or(time.Duration(c.Timeout), createTimeout) }

// dataTransport is the transport to runners. It repeats nothing: the bodies of requests cannot be
// sent twice, and the runner's client repeats the rest.
func (c *Config) dataTransport() *http.Transport {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	// Neither environment nor system says where this goes: the secrets of sandboxes go along.
	return &http.Transport{
		DialContext: dial, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 32, IdleConnTimeout: 60 * time.Second,
		DisableCompression: true, ForceAttemptHTTP2: false,
	}
}
