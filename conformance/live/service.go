package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor/driver"
)

// service is what is known of a service beside its adapter: where it is, how a sandbox is made and ends there, and what it costs.
type service struct {
	name     string
	address  string // the setting with the address of the control plane
	secret   string // the setting that names the key or token
	standard string // for a setting that is absent: the variable of the key
	price    price

	upstream *url.URL
	key      string // read once, for the traps and to be removed from what is written
	settings map[string]json.RawMessage
}

// price says what a sandbox costs, and who says so.
type price struct {
	what   string // as the source has it
	source string
	read   string                    // when
	rate   func(body []byte) float64 // USD in a second of a sandbox that is made by this request, at most; negative: not known
	not    string                    // what it leaves out
}

var services = map[string]func() *service{"e2b": e2bService, "flymachines": flyService}

// Types returns the backends that there is a kit for.
func Types() []string { return slices.Sorted(maps.Keys(services)) }

// service returns the service of the options.
func (o *Options) service() (*service, error) {
	f, ok := services[o.Type]
	if !ok {
		return nil, fmt.Errorf("there is no live kit for backends of type %s: %w", o.Type, driver.Unknown("type", o.Type, Types()))
	}
	s := f()
	s.settings = o.Settings
	at, err := s.text(s.address)
	if err != nil {
		return nil, err
	}
	if s.upstream, err = url.Parse(at); err != nil || s.upstream.Host == "" {
		return nil, fmt.Errorf("%s: %q is no address", s.address, at)
	}
	var from driver.Secret
	if raw := o.Settings[s.secret]; raw != nil {
		if err := json.Unmarshal(raw, &from); err != nil {
			return nil, fmt.Errorf("%s: %w", s.secret, err)
		}
	} else {
		from.Env = s.standard
	}
	if s.key, err = from.Value(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.secret, err)
	}
	return s, nil
}

// text returns a setting, or its default.
func (s *service) text(name string) (v string, err error) {
	if raw := s.settings[name]; raw != nil {
		if err := json.Unmarshal(raw, &v); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return v, nil
	}
	domain := "e2b.app"
	if raw := s.settings["domain"]; raw != nil {
		if err := json.Unmarshal(raw, &domain); err != nil {
			return "", fmt.Errorf("domain: %w", err)
		}
	}
	switch name {
	case "api_url":
		return "https://api." + domain, nil
	case "api":
		return "https://api.machines.dev", nil
	case "domain":
		return domain, nil
	}
	return "", nil
}

// call is what a request means for the bounds.
type call struct {
	create, destroy bool
	id              string // of the sandbox that it is about
	seconds         float64
}

// meaning reads a request to the control plane.
func (s *service) meaning(r *http.Request, body []byte) (c call) {
	words := strings.Split(strings.Trim(strings.TrimPrefix(path.Clean(r.URL.Path), strings.TrimSuffix(s.upstream.Path, "/")), "/"), "/")
	var said struct{ Timeout, Duration float64 }
	_ = json.Unmarshal(body, &said) // what is none has neither
	switch {
	case s.name == "Fly.io":
		if len(words) < 4 || words[0] != "v1" || words[1] != "apps" || words[3] != "machines" {
			return c
		}
		words = words[4:]
	case len(words) > 0 && words[0] == "v2":
		words = words[1:]
		fallthrough
	default:
		if len(words) == 0 || words[0] != "sandboxes" {
			return c
		}
		words = words[1:]
	}
	c.seconds = max(said.Timeout, said.Duration)
	switch len(words) {
	case 0:
		c.create = r.Method == http.MethodPost
	case 1:
		c.id, c.destroy = words[0], r.Method == http.MethodDelete
	default:
		c.id = words[0]
	}
	return c
}

// sandboxPath is where a sandbox is removed.
func (s *service) sandboxPath(id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/?#%.") {
		return "", errors.New("is no ID of a sandbox")
	}
	if s.name != "Fly.io" {
		return "/sandboxes/" + id, nil
	}
	app, err := s.text("app")
	return "/v1/apps/" + app + "/machines/" + id + "?force=true", err
}

// authorize adds the key to a request.
func (s *service) authorize(h http.Header) {
	if s.name != "Fly.io" {
		h.Set("X-API-KEY", s.key)
		return
	}
	switch {
	case strings.HasPrefix(s.key, "FlyV1 "), strings.HasPrefix(s.key, "Bearer "):
		h.Set("Authorization", s.key)
	case strings.HasPrefix(s.key, "fm"):
		h.Set("Authorization", "FlyV1 "+s.key)
	default:
		h.Set("Authorization", "Bearer "+s.key)
	}
}

const hour, month = 3600, 30 * 24 * 3600

// e2bService is E2B, or what speaks its protocols. The price is that of the example in its documentation, for any template up to that size:
// what a CPU and a GB cost by themselves, the page shows in a calculator only.
func e2bService() *service {
	return &service{
		name: "E2B", address: "api_url", secret: "api_key", standard: "E2B_API_KEY",
		price: price{
			what:   "0.468 USD an hour for a sandbox with 8 vCPU and 4 GB; smaller templates, such as base, cost less and are counted as that",
			source: "https://e2b.dev/docs/billing", read: "November 2026",
			rate: func([]byte) float64 { return 0.468 / hour },
			not:  "templates with more than 8 vCPU or 4 GB, storage of paused sandboxes, the plan itself",
		},
	}
}

// flyService is Fly.io.
func flyService() *service {
	return &service{
		name: "Fly.io", address: "api", secret: "token",
		price: price{
			what:   "about 2.02 USD a month for a shared CPU with 256 MB, 32 USD for a performance CPU with 2 GB, 5 USD for each GB more, by the second",
			source: "https://fly.io/docs/about/pricing/", read: "August 2026",
			rate: flyRate,
			not:  "regions that cost more than the cheapest, traffic (0.02 to 0.12 USD a GB), addresses",
		},
	}
}

// flyRate is what a Machine costs that a create asks for.
func flyRate(body []byte) float64 {
	var in struct {
		Config struct {
			Guest struct {
				Kind     string `json:"cpu_kind"`
				CPUs     int    `json:"cpus"`
				MemoryMB int    `json:"memory_mb"`
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return -1
	}
	g := in.Config.Guest
	g.CPUs = max(g.CPUs, 1)
	each, least := 2.02, 256
	switch g.Kind {
	case "", "shared":
	case "performance":
		each, least = 32, 2048
	default:
		return -1
	}
	return (float64(g.CPUs)*each + 5*float64(max(g.MemoryMB-g.CPUs*least, 0))/1024) / month
}

// Plan says what a run creates, and what that may cost.
func (o *Options) Plan() (string, error) {
	s, err := o.service()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This run makes sandboxes at %s, at %s, with the key that %s names.\n", s.name, s.upstream.Host, s.secret)
	fmt.Fprintf(&b, "  sandboxes  at most %d, one at a time for the most part, each for seconds\n", o.Bounds.Sandboxes)
	fmt.Fprintf(&b, "  time       at most %v, and up to %v more to remove what is left\n", o.Bounds.Time, keptBack)
	fmt.Fprintf(&b, "  money      at most %.2f USD: a sandbox is refused, and the run ends, when what there is could cost more\n", o.Bounds.USD)
	fmt.Fprintf(&b, "  prices     %s\n             (%s, read in %s; check them)\n", s.price.what, s.price.source, s.price.read)
	fmt.Fprintf(&b, "  not known  %s: not counted\n", s.price.not)
	fmt.Fprintf(&b, "  example    100 sandboxes of the default size, for ten seconds each, are %.4f USD\n", 1000*s.price.rate(o.exampleCreate()))
	fmt.Fprintf(&b, "  owners     %s; what earlier runs have left of them is removed first\n", strings.Join(o.Owners(), ", "))
	fmt.Fprintf(&b, "  writes     %s\n", o.Dir)
	return b.String(), nil
}

// exampleCreate is a create of the default size.
func (o *Options) exampleCreate() []byte {
	return []byte(`{"config":{"guest":{"cpu_kind":"shared","cpus":2,"memory_mb":512}}}`)
}
