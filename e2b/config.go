package e2b

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// The defaults of Config.
const (
	DefaultDomain   = "e2b.app"
	DefaultTemplate = "base"
	DefaultMaxLife  = time.Hour
	DefaultUser     = "root"

	defaultKey = "E2B_API_KEY"
)

// Config is what configuration says. The zero value runs Python at E2B, in its template "base", with the key that E2B_API_KEY holds.
type Config struct {
	// APIKey names the key of the service. Its form is not checked, since services other than E2B have others. Default: {env: E2B_API_KEY}.
	APIKey driver.Secret `json:"api_key,omitzero"`

	// Domain is that of the service. Default: "e2b.app".
	Domain string `json:"domain,omitempty"`
	// APIURL is the address of the control plane. Default: "https://api." and the domain.
	APIURL string `json:"api_url,omitempty"`
	// SandboxURL is the address of every sandbox, which requests then name in headers. Default: "https://<port>-<sandbox>.<domain>", with
	// the domain that the service gives a sandbox.
	SandboxURL string `json:"sandbox_url,omitempty"`
	// Insecure allows http to another machine, where anybody on the way reads the key and the code.
	Insecure bool `json:"insecure,omitempty"`

	// Kernel says what runs code: "runner", the default, or "code-interpreter". See the constants.
	Kernel string `json:"kernel,omitempty"`

	// Template is what sandboxes are made from: a name or an ID at the service. It needs python3 (3.9 or later), and node (18 or later) for
	// JavaScript; with the kernel "code-interpreter" it has to be made from E2B's template of that name. Default: "base", and with that kernel
	// "code-interpreter-v1".
	Template string `json:"template,omitempty"`
	// Templates are further ones by logical names.
	Templates map[string]string `json:"templates,omitempty"`
	// Languages are what the templates can run: "python", "javascript" or both, and with the kernel "code-interpreter" also "typescript", "r",
	// "java", "bash". Default: python. Create refuses a language whose interpreter the template turns out to lack.
	Languages []executor.Language `json:"languages,omitempty"`
	// User is who the supervisor runs as in a sandbox. Default: "root", who gives code a user of its own; what another one starts has its
	// rights, and could speak for the supervisor.
	User string `json:"user,omitempty"`

	// Networks are the policies that the service enforces: "none", "allowlist", "full". Default: all three, as at E2B.
	Networks []executor.NetworkMode `json:"networks,omitempty"`

	// Packages says what sessions may install, and where it comes from. The zero value: nothing but what the template has. A session needs
	// no network for it: a sandbox of its own, of the same template, with internet and without anything of a user, fetches wheels or
	// packages of npm once, and what it made of them is kept in the cache directory. It takes the kernel "runner" and the user root.
	Packages driver.Packages `json:"packages,omitzero"`

	// PublicTraffic lets anybody who knows the ID of a sandbox reach what listens in it, for services that cannot prevent it.
	PublicTraffic bool `json:"public_traffic,omitempty"`

	// Ports lets sessions ask for ports, so that this program can connect to servers in their sandboxes, through the daemon of E2B and never
	// by the public address of the sandbox. It takes the kernel "runner". Default: they are refused.
	Ports bool `json:"ports,omitempty"`

	// AllowWeak lets a sandbox start in which no filter narrows what sockets code can make, because the Python of its template has no
	// ctypes, by which the runner installs one. The log says so then. Default: Create refuses it with ErrUnsupported.
	AllowWeak bool `json:"allow_weak,omitempty"`

	// MaxLife is how long the account's plan lets a sandbox live: at E2B 1 hour or 24. Default: 1 hour.
	MaxLife driver.Duration `json:"max_life,omitzero"`
	// Timeout is how long the service may take to answer a request. Default: one minute.
	Timeout driver.Duration `json:"timeout,omitzero"`
}

var (
	domainForm   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$`)
	templateForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}$`)
	userForm     = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
)

// Validate reports every mistake in c, with its path.
func (c *Config) Validate() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	at("api_key", c.APIKey.Validate())
	if c.Domain != "" && !domainForm.MatchString(c.Domain) {
		at("domain", fmt.Errorf("%q is no host name", c.Domain))
	}
	at("api_url", c.checkURL(c.APIURL))
	at("sandbox_url", c.checkURL(c.SandboxURL))
	checkTemplate := func(path, name string) {
		if !templateForm.MatchString(name) {
			at(path, fmt.Errorf("%q is no name or ID of a template", name))
		}
	}
	if c.Template != "" {
		checkTemplate("template", c.Template)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		if name == "" {
			at("templates", errors.New("empty name"))
		}
		checkTemplate("templates."+name, c.Templates[name])
	}
	if kernels := []string{KernelRunner, KernelCodeInterpreter}; c.Kernel != "" && !slices.Contains(kernels, c.Kernel) {
		at("kernel", driver.Unknown("kernel", c.Kernel, kernels))
	}
	at("languages", driver.Choices("language", c.Languages, c.known()))
	if c.Ports && c.kernel() != KernelRunner {
		at("ports", fmt.Errorf("takes the kernel %q", KernelRunner))
	}
	if c.User != "" && !userForm.MatchString(c.User) {
		at("user", fmt.Errorf("%q is no name of a user", c.User))
	}
	modes := []executor.NetworkMode{executor.NetworkNone, executor.NetworkAllowlist, executor.NetworkFull}
	at("networks", driver.Choices("policy", c.Networks, modes))
	errs = append(errs, c.checkPackages())
	if c.MaxLife < 0 || c.MaxLife > 0 && time.Duration(c.MaxLife) < time.Second {
		at("max_life", errors.New("want a second or more"))
	}
	if c.Timeout < 0 {
		at("timeout", errors.New("negative"))
	}
	return errors.Join(errs...)
}

// checkURL refuses addresses by which a key would travel in the clear.
func (c *Config) checkURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("is not an address such as https://api.example.org")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("want a scheme, a host and a path only; the key belongs to api_key")
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return fmt.Errorf("scheme %q: want https", u.Scheme)
	case !c.Insecure && !isLoopback(u.Hostname()):
		return errors.New("http shows the key and the code to everybody on the way; use https, or set insecure")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Config) key() driver.Secret {
	if c.APIKey.IsZero() {
		return driver.Secret{Env: defaultKey}
	}
	return c.APIKey
}

func (c *Config) domain() string {
	if c.Domain == "" {
		return DefaultDomain
	}
	return c.Domain
}

func (c *Config) apiURL() string {
	if c.APIURL == "" {
		return "https://api." + c.domain()
	}
	return strings.TrimRight(c.APIURL, "/")
}

// template returns the service's name of a template.
func (c *Config) template(name string) string {
	if t, ok := c.Templates[name]; ok {
		return t
	}
	switch {
	case c.Template != "":
	case c.kernel() == KernelCodeInterpreter:
		return InterpreterTemplate
	default:
		return DefaultTemplate
	}
	return c.Template
}

func (c *Config) user() string {
	if c.User == "" {
		return DefaultUser
	}
	return c.User
}
