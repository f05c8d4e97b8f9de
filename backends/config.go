package backends

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/router"
	"github.com/execbroker/execbroker/internal/settings"
)

// Config is the configuration of a program. It is plain data: a program may also build it in Go.
type Config struct {
	// Backends are the configured backends. The keys are the names that the program uses for them:
	// 1 to 63 of [a-z0-9_-], the first of [a-z0-9]. At least one is required.
	Backends map[string]Backend `json:"backends"`
	// Routes say which sessions go to which backend: see package router. Without routes all
	// sessions go to the only backend.
	Routes []router.Route `json:"routes,omitempty"`
	// Rollouts move the splits of routes by themselves. The keys are the names of routes.
	Rollouts map[string]Rollout `json:"rollouts,omitempty"`
	// Shadows repeat runs on another backend. The keys are the names of routes.
	Shadows  map[string]Shadow `json:"shadows,omitempty"`
	Sessions Sessions          `json:"sessions,omitzero"`
	// Escalate lets conversations go on on a bigger backend when their code needs more.
	Escalate []Escalation `json:"escalate,omitempty"`
	Guard    Guard        `json:"guard,omitzero"`
	// Fronts are what a server serves in the form of other services. The Broker does not use them.
	Fronts []Front `json:"fronts,omitempty"`
	// CORS lets web pages use the server of the native API. The Broker does not use it.
	CORS CORS `json:"cors,omitzero"`

	at positions // of what Parse has read
}

// Backend configures one backend. In a file, the settings of the adapter are on the same level as
// the keys "type" and "broker".
type Backend struct {
	Type     string                     // one of Registry.Types
	Broker   Settings                   // for the Broker
	Settings map[string]json.RawMessage // decoded strictly by the adapter
}

// Check returns all errors in c, each as an *executor.FieldError, joined: names, unknown types,
// settings. It opens nothing.
func (c Config) Check(reg *Registry) error {
	var errs []error
	wrong := func(path, problem string) { errs = append(errs, driver.At(path, errors.New(problem))) }
	if len(c.Backends) == 0 {
		wrong("backends", "no backend; the smallest configuration is {backends: {local: {type: TYPE}}}, and types are "+strings.Join(reg.Types(), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		if !nameForm.MatchString(name) {
			wrong("backends", "the name "+strconv.Quote(name)+" is not 1 to 63 of a-z, 0-9, - and _, beginning with a letter or digit")
			continue // a path that contains that name would be unreadable
		}
		path, b := "backends."+name, c.Backends[name]
		if b.Type != "" || !c.at.wrong[path] { // otherwise Parse has already reported the entry or a part of it
			errs = append(errs, driver.At(path, b.check(reg)), driver.At(path+".broker", b.Broker.check()))
		}
	}
	errs = append(errs, c.checkRoutes(), c.checkRollouts(), c.checkShadows(), driver.At("sessions", c.Sessions.check()), c.checkDrain(), c.checkEscalations(), driver.At("guard", c.Guard.check()))
	return c.at.report(errors.Join(errs...))
}

// checkRoutes checks the routes, if there are any.
func (c Config) checkRoutes() error {
	if len(c.Routes) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(c.Backends))
	found := executor.FieldErrors(router.Config{Routes: c.Routes}.Check(names))
	found = slices.DeleteFunc(found, func(e *executor.FieldError) bool { return c.at.wrong[e.Path] })
	return settings.Join(found, 0)
}

// index returns "path[i]".
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (b Backend) check(reg *Registry) error {
	if b.Type == "" {
		for _, key := range slices.Sorted(maps.Keys(b.Settings)) {
			if driver.Nearest(key, []string{"type"}) != "" {
				return &executor.FieldError{Field: key, Err: driver.Unknown("field", key, []string{"type"})}
			}
		}
		return errors.New("has no type; the types are " + strings.Join(reg.Types(), ", "))
	}
	f, err := reg.factory(b.Type)
	if err != nil {
		return driver.At("type", err)
	}
	raw, err := b.settings()
	if err != nil {
		return err
	}
	return f.Check(raw)
}

// settings returns the settings for the adapter.
func (b Backend) settings() ([]byte, error) {
	if len(b.Settings) == 0 {
		return nil, nil
	}
	return json.Marshal(b.Settings)
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Backend) UnmarshalJSON(p []byte) error {
	*b = Backend{}
	err := driver.DecodeStrict(p, &b.Settings)
	if raw, ok := b.Settings["type"]; ok {
		err = errors.Join(err, driver.At("type", driver.DecodeStrict(raw, &b.Type)))
		delete(b.Settings, "type")
	}
	if raw, ok := b.Settings["broker"]; ok {
		err = errors.Join(err, driver.At("broker", driver.DecodeStrict(raw, &b.Broker)))
		delete(b.Settings, "broker")
	}
	return err
}

// MarshalJSON implements json.Marshaler.
func (b Backend) MarshalJSON() ([]byte, error) {
	m := map[string]any{"type": b.Type}
	if !reflect.DeepEqual(b.Broker, Settings{}) {
		m["broker"] = b.Broker
	}
	for k, v := range b.Settings {
		m[k] = v
	}
	return json.Marshal(m)
}
