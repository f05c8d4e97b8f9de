package driver

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/settings"
)

// Factory opens one type of backend from configuration. The zero value is not usable: see
// NewFactory.
type Factory struct {
	typ    string
	fields []string
	check  func(raw []byte) error
	open   func(ctx context.Context, env Env, raw []byte) (executor.Executor, error)
	doctor func(ctx context.Context, env Env, raw []byte) []Check
	setup  func(ctx context.Context, env Env, raw []byte) error // nil: there is nothing to set up
	prices Prices
}

// NewFactory makes a Factory of functions with a typed configuration. Settings are decoded by
// DecodeStrict; if *C has a method Validate() error, it is called, and what it finds is reported
// together with what decoding found. open does no remote I/O. doctor may be nil; it does what it
// needs, changes nothing and works where open fails.
func NewFactory[C any](typ string, open func(context.Context, Env, C) (executor.Executor, error), doctor func(context.Context, Env, C) []Check) Factory {
	f := Factory{typ: typ}
	if t := reflect.TypeFor[C](); t.Kind() == reflect.Struct {
		f.fields = slices.Sorted(maps.Keys(settings.Fields(t)))
	}
	f.check = func(raw []byte) error { _, err := decode[C](raw); return err }
	f.open = func(ctx context.Context, env Env, raw []byte) (executor.Executor, error) {
		c, err := decode[C](raw)
		if err != nil {
			return nil, err
		}
		return open(ctx, env, c)
	}
	f.doctor = func(ctx context.Context, env Env, raw []byte) []Check {
		c, err := decode[C](raw)
		if err != nil {
			return []Check{{Name: "configuration", Detail: err.Error(), Fix: "correct the configuration of this backend"}}
		}
		checks := []Check{{Name: "configuration", OK: true}}
		if doctor != nil {
			checks = append(checks, doctor(ctx, env, c)...)
		}
		return checks
	}
	return f
}

// WithSetup returns f with a function that fetches and prepares ahead what the first Create would
// make its caller wait for. setup tells executor.WithProgress what it does, and may be called
// again, by several processes at once. C is the type that f decodes.
func WithSetup[C any](f Factory, setup func(context.Context, Env, C) error) Factory {
	f.setup = func(ctx context.Context, env Env, raw []byte) error {
		c, err := decode[C](raw)
		if err != nil {
			return err
		}
		return setup(ctx, env, c)
	}
	return f
}

// Type returns the name that configuration uses.
func (f Factory) Type() string { return f.typ }

// Fields returns the names of the settings at the top level, sorted.
func (f Factory) Fields() []string { return f.fields }

// Check decodes and validates settings. Its errors are joined *executor.FieldErrors.
func (f Factory) Check(raw []byte) error { return f.check(raw) }

// Open opens the backend. Its errors about settings are those of Check.
func (f Factory) Open(ctx context.Context, env Env, raw []byte) (executor.Executor, error) {
	return f.open(ctx, env, raw)
}

// Doctor examines what the backend needs: engine, network, credentials, quota. The first Check is
// about the settings.
func (f Factory) Doctor(ctx context.Context, env Env, raw []byte) []Check {
	return f.doctor(ctx, env, raw)
}

// Setup does the work of WithSetup, if there is any.
func (f Factory) Setup(ctx context.Context, env Env, raw []byte) error {
	if f.setup == nil {
		return nil
	}
	return f.setup(ctx, env, raw)
}

// HasSetup reports whether Setup does anything.
func (f Factory) HasSetup() bool { return f.setup != nil }

// Check is a finding of Doctor.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what was found
	Fix    string `json:"fix,omitempty"`    // what to do about it
	// Setup says that what is missing is made by the function of WithSetup, and by the first
	// Create.
	Setup bool `json:"setup,omitempty"`
}

// decode decodes and validates. Where a value could not be decoded, Validate would complain about
// the zero value in its place, so it is called only if all errors are about fields that should not
// be there.
func decode[C any](raw []byte) (c C, err error) {
	err = settings.Decode(raw, &c)
	known := !slices.ContainsFunc(executor.FieldErrors(err), func(e *executor.FieldError) bool { return e.Field == "" })
	if v, ok := any(&c).(interface{ Validate() error }); ok && known {
		err = errors.Join(err, v.Validate())
	}
	return c, settings.At("", err)
}
