package backends

import (
	"fmt"
	"maps"
	"slices"

	"github.com/execbroker/execbroker/executor/driver"
)

// Registry contains the backend types that a configuration may use. There is no global one: a
// program lists the adapters that it links. A Registry never changes.
type Registry struct{ m map[string]driver.Factory }

// NewRegistry panics if two factories have the same type, or if one has none.
func NewRegistry(fs ...driver.Factory) *Registry {
	r := &Registry{m: make(map[string]driver.Factory, len(fs))}
	for _, f := range fs {
		if _, dup := r.m[f.Type()]; dup || f.Type() == "" {
			panic(fmt.Sprintf("backends: type %q registered twice or empty", f.Type()))
		}
		r.m[f.Type()] = f
	}
	return r
}

// Types returns the registered types in order.
func (r *Registry) Types() []string { return slices.Sorted(maps.Keys(r.m)) }

// HasSetup reports whether Setup does anything for a type.
func (r *Registry) HasSetup(typ string) bool { return r.m[typ].HasSetup() }

func (r *Registry) factory(typ string) (driver.Factory, error) {
	f, ok := r.m[typ]
	if !ok {
		return f, driver.Unknown("type", typ, r.Types())
	}
	return f, nil
}
