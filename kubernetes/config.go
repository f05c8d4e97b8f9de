package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/runner"
)

// DefaultImage is the image of sessions whose configuration names none: an official one, by its
// full name.
const DefaultImage = "docker.io/library/python:3.13-slim"

// Config is what configuration says. Namespace is required.
type Config struct {
	// Namespace is where the pods are. It should hold nothing but sandboxes, and has to exist.
	Namespace string `json:"namespace"`

	// Kubeconfig is the path of a kubeconfig, and Context the name of one of its contexts. Without
	// a path it is what kubectl would use: KUBECONFIG, ~/.kube/config, or the credentials that
	// Kubernetes gives to a pod. Credential plugins are run, without standard input.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	// InCluster uses the credentials of the pod that this program runs in, and nothing else.
	InCluster bool `json:"in_cluster,omitempty"`
	// Server is the address of an API server, "https://10.0.0.1:6443", instead of a kubeconfig. CA
	// is the file with its authority, empty for the system's. Token is read for each request.
	Server string        `json:"server,omitempty"`
	CA     string        `json:"ca,omitempty"`
	Token  driver.Secret `json:"token,omitzero"`

	// Image is what sessions run in. It needs python3 for Python and node for JavaScript, and
	// nothing else. Unless Pull is "never" the name begins with the registry.
	Image string `json:"image,omitempty"`
	// Pull says when nodes get images from their registry: "missing" (the default), "always",
	// "never".
	Pull Pull `json:"pull,omitempty"`
	// PullSecrets are names of secrets in Namespace with credentials for registries.
	PullSecrets []string `json:"pull_secrets,omitempty"`
	// Templates are further images by logical names. In a file the image alone stands for the
	// whole.
	Templates map[string]Template `json:"templates,omitempty"`
	// Languages are what the images can run: "python", "javascript" or both. Default: python.
	// Create refuses a language whose interpreter the image turns out to lack.
	Languages []executor.Language `json:"languages,omitempty"`

	// RuntimeClass is a RuntimeClass of the cluster, such as "gvisor" or "kata". The declared
	// isolation follows from its name. Empty: the runtime of the nodes.
	RuntimeClass string `json:"runtime_class,omitempty"`
	// UserNamespaces gives each pod a user namespace (hostUsers: false). It needs nodes that can:
	// others refuse the pod. Default: root in a pod is root of the node, without its rights.
	UserNamespaces bool `json:"user_namespaces,omitempty"`
	// Seccomp is a profile below the directory of the kubelet, "profiles/sandbox.json", that nodes
	// have instead of that of their runtime.
	Seccomp string `json:"seccomp,omitempty"`
	// NodeSelector, Tolerations and PriorityClass say which nodes the pods go to, and before whom.
	NodeSelector  map[string]string `json:"node_selector,omitempty"`
	Tolerations   []Toleration      `json:"tolerations,omitempty"`
	PriorityClass string            `json:"priority_class,omitempty"`

	// Network says what takes the network from a sandbox: "interface" (the default) takes every
	// interface of the pod down but loopback before there is code. The pod has NET_ADMIN for
	// that moment, which a namespace with the Pod Security level "baseline" refuses. "policy"
	// makes a NetworkPolicy instead, which the network of the cluster has to enforce: each pod
	// proves before there is code that it reaches neither the API server nor its node nor
	// PolicyTargets, which takes a second, and is refused otherwise.
	Network NetworkMode `json:"network,omitempty"`
	// PolicyTargets are further addresses that pods must not reach with Network "policy", IP:PORT:
	// of a listener of yours, or of servers that code must never reach. At most 16.
	PolicyTargets []string `json:"policy_targets,omitempty"`
	// AllowClusterNetwork lets sessions ask for the full network. Their code then reaches whatever
	// a pod of this namespace reaches: pods, services, nodes and the metadata service of the cloud,
	// unless policies of the cluster forbid that. Default: they are refused.
	AllowClusterNetwork bool `json:"allow_cluster_network,omitempty"`

	// Ports lets sessions ask for ports, so that this program can connect to servers in their
	// sandboxes. Default: they are refused.
	Ports bool `json:"ports,omitempty"`

	// Limits are those of sessions that ask for none. Defaults: 1 CPU, 512 MiB of memory, 256 MiB
	// of disk, 128 processes.
	Limits Limits `json:"limits,omitzero"`
	// MaxLimits is the most that a session may ask for. Zero fields: no bound but the cluster's.
	MaxLimits Limits `json:"max_limits,omitzero"`
	// Requests is the part of the limits of CPU and memory that a pod requests, by which nodes are
	// chosen: more than 0, at most 1. Less puts more sandboxes on a node than can use their limits
	// at once. Default: 1.
	Requests float64 `json:"requests,omitempty"`

	// AllowWeak lets a sandbox start in which no filter narrows what sockets code can make, because
	// the Python of the image has no ctypes, by which the runner installs one. The log says so.
	// Default: Create refuses it with ErrUnsupported.
	AllowWeak bool `json:"allow_weak,omitempty"`

	// AllowCodeFilters lets code install filters of system calls, as the sandboxes of browsers do.
	// The kernel compiles them into memory of the whole node, of which some sandboxes can take all:
	// then no other sandbox can be made there. Default: code finds a kernel without such filters.
	AllowCodeFilters bool `json:"allow_code_filters,omitempty"`

	// MaxLife is how long a sandbox lives at most, in use or not: the most that a Spec may ask for,
	// and what one gets that asks for nothing. Default: 24 hours; "none" is no bound.
	MaxLife driver.Life `json:"max_life,omitzero"`
	// Timeout is how long a create may take, the pull of an image included. A pod that nobody has
	// set up for longer ends by itself. Default: 5 minutes.
	Timeout driver.Duration `json:"timeout,omitzero"`
	// ScheduleTimeout is how long a pod may wait for a node: longer where nodes are added when they
	// are needed. Default: 30 seconds.
	ScheduleTimeout driver.Duration `json:"schedule_timeout,omitzero"`

	// Packages says what sessions may install without a network of their own, and where it comes
	// from. The zero value: nothing but what templates have. A pod of the same image, without
	// anything of a user, fetches wheels or packages of npm once, with the network of the cluster
	// unless they are in a directory of wheels. In a session they are in memory, which grows by
	// Size for each language that can have some.
	Packages driver.Packages `json:"packages,omitzero"`

	// Claims and ServicePort are not built yet. Each is refused, so that nobody relies on them.
	Claims      json.RawMessage `json:"claims,omitempty"`
	ServicePort json.RawMessage `json:"service_port,omitempty"`
}

// Pull says when images come from their registry.
type Pull string

// The pull policies.
const (
	PullMissing Pull = "missing" // when the node does not have the image
	PullAlways  Pull = "always"  // for each session, so that a moved tag is followed
	PullNever   Pull = "never"
)

// NetworkMode says what takes the network from sandboxes.
type NetworkMode string

// The network modes.
const (
	NetworkInterface NetworkMode = "interface" // interfaces are taken down in the pod
	NetworkPolicy    NetworkMode = "policy"    // a NetworkPolicy of the cluster
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

// Toleration lets pods go to nodes with a taint, in the words of Kubernetes.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"` // "Exists" or "Equal", the default
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"` // empty: all effects
}

// Limits are executor.Limits as configuration writes them.
type Limits = driver.Limits

const (
	defaultTimeout  = 5 * time.Minute
	defaultSchedule = 30 * time.Second
)

func (c *Config) timeout() time.Duration { return cmp.Or(time.Duration(c.Timeout), defaultTimeout) }

func (c *Config) scheduleTimeout() time.Duration {
	return cmp.Or(time.Duration(c.ScheduleTimeout), defaultSchedule)
}

func (c *Config) languages() []executor.Language {
	if len(c.Languages) == 0 {
		return []executor.Language{executor.Python}
	}
	return c.Languages
}

// image returns the image of a template.
func (c *Config) image(template string) string {
	if t, ok := c.Templates[template]; ok {
		return t.Image
	}
	return cmp.Or(c.Image, DefaultImage)
}

// label and subdomain are the forms of names in Kubernetes.
var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
)

// Validate reports every mistake in c, with its path.
func (c *Config) Validate() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	switch {
	case c.Namespace == "":
		at("namespace", errors.New("is required: a namespace that holds nothing but sandboxes"))
	case !label.MatchString(c.Namespace):
		at("namespace", fmt.Errorf("%q is no name of a namespace", c.Namespace))
	}
	c.checkCluster(at)
	c.checkNetwork(at)
	c.checkUnbuilt(at)
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
		at("templates."+name+".limits", c.countable(t.Limits))
		at("templates."+name+".packages", packages.CheckPreset(t.Packages))
	}
	at("languages", driver.Choices("language", c.Languages, runner.Languages))
	for i, s := range c.PullSecrets {
		at(fmt.Sprintf("pull_secrets[%d]", i), checkName(s))
	}
	if c.RuntimeClass != "" {
		at("runtime_class", checkName(c.RuntimeClass))
	}
	if c.PriorityClass != "" {
		at("priority_class", checkName(c.PriorityClass))
	}
	if s := c.Seccomp; s != "" && (!filepath.IsLocal(s) || strings.Contains(s, `\`)) {
		at("seccomp", errors.New("want a path below the directory of profiles of the kubelet"))
	}
	for i, t := range c.Tolerations {
		at(fmt.Sprintf("tolerations[%d]", i), t.check())
	}
	at("limits", c.Limits.Validate())
	at("limits", c.countable(c.Limits))
	at("max_limits", c.MaxLimits.Validate())
	if !(c.Requests >= 0 && c.Requests <= 1) { // not a number is neither
		at("requests", errors.New("want a part of the limits: more than 0, at most 1"))
	}
	if c.Timeout < 0 {
		at("timeout", errors.New("negative"))
	}
	if c.ScheduleTimeout < 0 {
		at("schedule_timeout", errors.New("negative"))
	}
	errs = append(errs, c.sources().Validate(c.languages(), c.presets()...))
	return errors.Join(errs...)
}

// checkCluster reports mistakes in what says where the cluster is.
func (c *Config) checkCluster(at func(string, error)) {
	if c.InCluster {
		for name, set := range map[string]bool{"kubeconfig": c.Kubeconfig != "", "context": c.Context != "", "server": c.Server != ""} {
			if set {
				at(name, errors.New("excludes in_cluster"))
			}
		}
	}
	if c.Server == "" {
		for name, set := range map[string]bool{"ca": c.CA != "", "token": !c.Token.IsZero()} {
			if set {
				at(name, errors.New("needs server; a kubeconfig has its own"))
			}
		}
		return
	}
	if c.Kubeconfig != "" || c.Context != "" {
		at("server", errors.New("excludes kubeconfig and context"))
	}
	if u, err := url.Parse(c.Server); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		at("server", errors.New("want https://HOST:PORT: who reads the token has its rights"))
	}
	if c.Token.IsZero() {
		at("token", errors.New("is required with server: {env: NAME} or {file: PATH}"))
	}
}

// maxTargets bounds PolicyTargets.
const maxTargets = 16

// checkNetwork reports a mode that there is not, and targets that no pod would try.
func (c *Config) checkNetwork(at func(string, error)) {
	switch n := len(c.PolicyTargets); {
	case n > 0 && c.Network != NetworkPolicy:
		at("policy_targets", errors.New("needs network: policy; otherwise pods have no interface to reach anything by"))
	case n > maxTargets:
		at("policy_targets", fmt.Errorf("%d are more than %d", n, maxTargets))
	}
	for i, target := range c.PolicyTargets {
		if a, err := netip.ParseAddrPort(target); err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
			at(fmt.Sprintf("policy_targets[%d]", i), errors.New("want IP:PORT: pods without network have no name server"))
		}
	}
	switch c.Network {
	case "", NetworkInterface, NetworkPolicy:
	default:
		at("network", driver.Unknown("mode", string(c.Network), []string{string(NetworkInterface), string(NetworkPolicy)}))
	}
}

// checkUnbuilt refuses by name what this version does not have.
func (c *Config) checkUnbuilt(at func(string, error)) {
	if len(c.Claims) > 0 {
		at("claims", errors.New("claims of agent-sandbox are not built yet; the broker's pools keep pods ready"))
	}
	if len(c.ServicePort) > 0 {
		at("service_port", errors.New("pods are not reached by their address yet; connections go through the API server"))
	}
}

// countable refuses what a runtime does not count.
func (c *Config) countable(l Limits) error {
	if l.Processes > 0 && isolationOf(c.RuntimeClass) == executor.IsolationGVisor {
		return errors.New("processes: gVisor does not count them")
	}
	return nil
}

func checkName(name string) error {
	if !subdomain.MatchString(name) {
		return fmt.Errorf("%q is no name of an object", name)
	}
	return nil
}

func (t Toleration) check() error {
	switch {
	case t.Operator != "" && t.Operator != "Exists" && t.Operator != "Equal":
		return driver.Unknown("operator", t.Operator, []string{"Exists", "Equal"})
	case t.Operator == "Exists" && t.Value != "":
		return errors.New("value: Exists has none")
	case t.Operator != "Exists" && t.Key == "":
		return errors.New("key: is empty")
	case !slices.Contains([]string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect):
		return driver.Unknown("effect", t.Effect, []string{"NoSchedule", "PreferNoSchedule", "NoExecute"})
	}
	return nil
}

// checkImage refuses names that a node would complete on its own, with a registry where anybody may
// have taken them.
func (c *Config) checkImage(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("%q has characters that no image name has", name)
	case c.Pull == PullNever:
		return nil
	}
	if registry, rest, ok := strings.Cut(name, "/"); !ok || rest == "" || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		return fmt.Errorf("%q has no registry; write docker.io/library/... if that is meant, or set pull to never", name)
	}
	return nil
}
