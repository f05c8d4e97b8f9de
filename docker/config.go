package docker

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/runner"
)

// DefaultImage is the image of sessions whose configuration names none: an official one, by its
// full name.
const DefaultImage = "docker.io/library/python:3.13-slim"

// Config is what configuration says. The zero value runs Python in DefaultImage on the engine that
// the docker command would use.
type Config struct {
	// Host is the address of the engine: unix:///path, tcp://host:port, or npipe:// on Windows.
	// Context names a context of the docker command instead. Without both it is what the
	// environment says: DOCKER_HOST, DOCKER_CONTEXT, the current context, the socket of the system,
	// that of a rootless engine.
	Host    string `json:"host,omitempty"`
	Context string `json:"context,omitempty"`
	// TLS is for a tcp Host: it is required there.
	TLS *TLS `json:"tls,omitempty"`

	// Image is what sessions run in. It needs python3 for Python and node for JavaScript, and
	// nothing else. Unless Pull is "never" the name begins with the registry: an engine completes a
	// short one with the public hub's, where anybody may have taken it.
	Image string `json:"image,omitempty"`
	// Pull says when images come from their registry: "missing" (the default), "always", "never".
	Pull Pull `json:"pull,omitempty"`
	// Templates are further images by logical names. In a file the image alone stands for the
	// whole.
	Templates map[string]Template `json:"templates,omitempty"`
	// Languages are what the images can run: "python", "javascript" or both. Default: python.
	// Create refuses a language whose interpreter the image turns out to lack.
	Languages []executor.Language `json:"languages,omitempty"`

	// Runtime is one of the engine's, such as "runsc" for gVisor or "kata" for a microVM. Empty:
	// the engine's default. The declared isolation follows from it.
	Runtime string `json:"runtime,omitempty"`
	// Network is the engine's network for sessions with the full policy. Default: "bridge".
	Network string `json:"network,omitempty"`

	// Packages says what sessions may install without a network of their own. The zero value:
	// nothing.
	Packages Packages `json:"packages,omitzero"`

	// Ports lets sessions ask for ports, so that this program can connect to servers in their
	// sandboxes. Default: they are refused.
	Ports bool `json:"ports,omitempty"`

	// Limits are those of sessions that ask for none. Defaults: 1 CPU, 512 MiB of memory, 256 MiB
	// of disk, 128 processes.
	Limits Limits `json:"limits,omitzero"`
	// MaxLimits is the most that a session may ask for. Zero fields: no bound but the machine's.
	MaxLimits Limits `json:"max_limits,omitzero"`

	// StrictMemory refuses engines whose limit of memory leaves something out: control groups of
	// version 1 do not count what waits in sockets of the families INET and INET6, those of the
	// loopback interface included, of which code can make gigabytes. Default: such an engine is
	// used, and Doctor says so.
	StrictMemory bool `json:"strict_memory,omitempty"`

	// AllowWeak lets a sandbox start in which no filter narrows what sockets code can make: that of
	// the runtime does not take effect, and the Python of the image has no ctypes, by which the
	// runner installs its own. The log says so then. Default: Create refuses it with
	// ErrUnsupported.
	AllowWeak bool `json:"allow_weak,omitempty"`

	// AllowCodeFilters lets code install filters of system calls, as the sandboxes of browsers do.
	// The kernel compiles them into memory of the whole machine, of which some sandboxes can take
	// all: then no other sandbox can be made there. Default: code finds a kernel without such
	// filters.
	AllowCodeFilters bool `json:"allow_code_filters,omitempty"`

	// MaxLife is how long a sandbox lives at most, in use or not: the most that a Spec may ask for,
	// and what one gets that asks for nothing. Default: 24 hours; "none" is no bound.
	MaxLife driver.Life `json:"max_life,omitzero"`

	// Timeout is how long the engine may take to answer a question, to start a container for
	// example. Default: one minute.
	Timeout driver.Duration `json:"timeout,omitzero"`
}

// TLS names the files of a certificate in PEM form.
type TLS struct {
	CA   string `json:"ca"`   // of the engine; empty: the system's
	Cert string `json:"cert"` // of this client
	Key  string `json:"key"`
}

// Pull says when images come from their registry.
type Pull string

// The pull policies.
const (
	PullMissing Pull = "missing" // when the engine does not have the image
	PullAlways  Pull = "always"  // before each session, so that a moved tag is followed
	PullNever   Pull = "never"
)

// Template is an image by a logical name. Zero fields are those of Config.
type Template struct {
	Image  string `json:"image"`
	Limits Limits `json:"limits,omitzero"`
	// Packages are in its sessions from the beginning, whether or not Config.Packages allows to ask
	// for them.
	Packages map[executor.Language][]string `json:"packages,omitempty"`
}

// UnmarshalJSON takes the image alone, too.
func (t *Template) UnmarshalJSON(raw []byte) error {
	type plain Template
	return driver.DecodeShort(raw, &t.Image, (*plain)(t))
}

// Limits are executor.Limits as configuration writes them.
type Limits = driver.Limits

// Size is a number of bytes that configuration writes as a number or as "512MiB".
type Size = driver.Size

// Validate reports every mistake in c, with its path.
func (c *Config) Validate() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	if c.Host != "" && c.Context != "" {
		at("context", errors.New("excludes host"))
	}
	if c.Host != "" {
		at("host", checkHost(c.Host, c.TLS != nil))
	}
	if c.TLS != nil && c.Host == "" {
		at("tls", errors.New("needs a tcp host; a context has its own"))
	}
	if c.TLS != nil && (c.TLS.Cert == "" || c.TLS.Key == "") {
		at("tls", errors.New("needs cert and key: an engine that takes any client is open to everybody who reaches it"))
	}
	switch c.Pull {
	case "", PullMissing, PullAlways, PullNever:
	default:
		at("pull", driver.Unknown("policy", string(c.Pull), []string{string(PullMissing), string(PullAlways), string(PullNever)}))
	}
	at("image", c.checkImage(c.image("")))
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		t := c.Templates[name]
		if name == "" {
			at("templates", errors.New("empty name"))
		}
		at("templates."+name+".image", c.checkImage(t.Image))
		at("templates."+name+".limits", t.Limits.Validate())
		at("templates."+name+".limits", countable(t.Limits, c.Runtime))
		at("templates."+name+".packages", packages.CheckPreset(t.Packages))
	}
	at("languages", driver.Choices("language", c.Languages, runner.Languages))
	at("limits", countable(c.Limits, c.Runtime))
	if c.Timeout < 0 {
		at("timeout", errors.New("negative"))
	}
	at("limits", c.Limits.Validate())
	at("max_limits", c.MaxLimits.Validate())
	at("network", checkNetwork(c.Network))
	if c.Network == "none" {
		at("network", errors.New("none is what sessions have by default; this is the network of the full policy"))
	}
	errs = append(errs, c.checkPackages())
	return errors.Join(errs...)
}

func checkNetwork(name string) error {
	switch {
	case name == "host":
		return errors.New("host would put sandboxes into the network of the machine")
	case strings.Contains(name, ":"):
		return errors.New("joining the network of a container is not supported")
	}
	return nil
}

// countable refuses what a runtime does not count.
func countable(l Limits, runtime string) error {
	if l.Processes > 0 && isolationOf(runtime) == executor.IsolationGVisor {
		return errors.New("processes: gVisor does not count them")
	}
	return nil
}

// image returns the image of a template.
func (c *Config) image(template string) string {
	if t, ok := c.Templates[template]; ok {
		return t.Image
	}
	if c.Image == "" {
		return DefaultImage
	}
	return c.Image
}

var imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)

// checkImage refuses names that an engine would complete on its own. The part before the first
// slash is a registry if it could not be the name of a user: that is how engines tell, too.
func (c *Config) checkImage(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%q has characters that no image name has", name)
	case c.Pull == PullNever || imageID.MatchString(name):
		return nil
	}
	registry, rest, ok := strings.Cut(name, "/")
	if ok && (strings.ContainsAny(registry, ".:") || registry == "localhost") && rest != "" {
		return nil
	}
	full := "docker.io/library/" + name
	if ok {
		full = "docker.io/" + name
	}
	return fmt.Errorf("%q has no registry; write %q if that is meant, or set pull to never", name, full)
}

// checkHost refuses addresses that the client cannot use safely.
func checkHost(host string, tls bool) error {
	scheme, rest, ok := strings.Cut(host, "://")
	switch {
	case !ok || rest == "":
		return fmt.Errorf("%q is not an address such as unix:///var/run/docker.sock", host)
	case scheme == "unix" && !filepath.IsAbs(rest):
		return errors.New("the path of the socket is not absolute")
	case scheme == "unix", scheme == "npipe":
		return nil
	case scheme == "ssh":
		return errors.New("ssh is not supported; forward the engine's socket (ssh -L) and give its path")
	case scheme == "tcp" && !tls && !isLoopback(rest):
		return errors.New("tcp without tls gives the machine of the engine to everybody on the way; set tls")
	case scheme == "tcp":
		return nil
	}
	return driver.Unknown("scheme", scheme, []string{"unix", "tcp", "npipe"})
}

// isLoopback reports whether an address can only be this machine, as the end of a tunnel is.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}
