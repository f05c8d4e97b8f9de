package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
)

// service is what is known of a service beside its adapter: where it is, how a sandbox is made and
// ends there, and what it costs.
type service struct {
	name     string
	address  string // the setting with the address of the control plane
	secret   string // the setting that names the key or token
	standard string // for a setting that is absent: the variable of the key
	price    price
	texts    map[string]string // settings of the adapter that are read here as well; before that, their defaults

	// sandboxes returns the words of a path after that of the sandboxes, and whether it is about
	// them.
	sandboxes func(words []string) ([]string, bool)
	// timed says that a sandbox ends at the time that requests name.
	timed bool
	// remove returns the path at which a sandbox is removed.
	remove func(s *service, id string) string
	// authorization returns the header with a key.
	authorization func(key string) (name, value string)
	// find finds the sandbox of the session that traps share: the ID that the service has for it.
	find  func(ctx context.Context, s *site) (string, error)
	traps []trap

	upstream *url.URL
	key      string // read once, for the traps and to be removed from what is written
}

// price says what a sandbox costs, and who says so.
type price struct {
	what   string // as the source has it
	source string
	read   string                    // when
	rate   func(body []byte) float64 // USD in a second of a sandbox that is made by this request, at most; negative: not known
	not    string                    // what it leaves out
}

const hour, month = 3600, 30 * 24 * 3600 // in seconds

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
	err := s.read(o.Settings)
	if err != nil {
		return nil, err
	}
	at := s.texts[s.address]
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

// read reads the settings that have a default here. A default may have the domain in it.
func (s *service) read(settings map[string]json.RawMessage) error {
	for name := range s.texts {
		v := s.texts[name]
		if raw := settings[name]; raw != nil {
			if err := json.Unmarshal(raw, &v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		s.texts[name] = v
	}
	for name, v := range s.texts {
		s.texts[name] = strings.ReplaceAll(v, "{domain}", s.texts["domain"])
	}
	return nil
}

// call is what a request means for the bounds.
type call struct {
	create, destroy bool
	id              string  // of the sandbox that it is about
	seconds         float64 // how long it lives from then on; 0: the request does not say
}

// until is when the sandbox ends by itself; the zero time: the request does not say.
func (c call) until() time.Time {
	if c.seconds <= 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(c.seconds * float64(time.Second)))
}

// meaning reads a request to the control plane.
func (s *service) meaning(r *http.Request, body []byte) (c call) {
	words := strings.Split(strings.Trim(strings.TrimPrefix(path.Clean(r.URL.Path), strings.TrimSuffix(s.upstream.Path, "/")), "/"), "/")
	words, ok := s.sandboxes(words)
	if !ok {
		return c
	}
	if s.timed {
		var said struct{ Timeout, Duration float64 }
		_ = json.Unmarshal(body, &said) // what is none has neither
		c.seconds = max(said.Timeout, said.Duration)
	}
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

// removal returns the path at which a sandbox is removed.
func (s *service) removal(id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/?#%.") {
		return "", errors.New("is no ID of a sandbox")
	}
	return s.remove(s, id), nil
}

// authorize adds the key to a request.
func (s *service) authorize(h http.Header) { h.Set(s.authorization(s.key)) }

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
