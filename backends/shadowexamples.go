package backends

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
	"github.com/execbroker/execbroker/executor/sessions"
)

// examplePrefix begins the keys of examples: with the route, the plan and a number, a
// ShadowExample. Each expires by itself.
const examplePrefix = "shadow-example/"

// Bounds of examples. Each is an entry of the store with other fields beside its code.
const (
	maxExample   = 40 << 10 // code, input and files, as JSON
	maxShownText = 500      // of a field that differs
	maxOfClass   = 3
)

func exampleKey(route, id string, i int) string {
	return fmt.Sprintf("%s%s/%s/%d", examplePrefix, route, id, i)
}

// ShadowExample is a conversation that differs. What it has of the conversation is what
// Shadow.Keep says.
type ShadowExample struct {
	Time  time.Time `json:"time"`
	Class string    `json:"class"`
	// Program is a line of a file of programs for the command parity.
	Program     json.RawMessage      `json:"program,omitempty"`
	Differences []compare.Difference `json:"differences,omitempty"` // the original is Want
}

// example gathers the program of a conversation, if it may be kept and can be written as one.
type example struct {
	on       bool
	language executor.Language
	cells    []exampleCell
	files    map[string]string
	size     int
}

type exampleCell struct {
	Code  string `json:"code"`
	Stdin string `json:"stdin,omitempty"`
}

func (e *example) begin(k ShadowKeep) { e.on, e.files = k.Code, map[string]string{} }

// step adds a change of files. Only files that are there before the first run can be written down.
func (e *example) step(f *file) {
	if f == nil || len(e.cells) > 0 || !utf8.Valid(f.data) {
		e.on = false
		return
	}
	name := strings.TrimPrefix(f.name, executor.Workdir+"/")
	if !fs.ValidPath(name) || name == "." {
		e.on = false
		return
	}
	e.files[name] = string(f.data)
	e.grow(len(name) + len(f.data))
}

// run adds a run.
func (e *example) run(past pastRun) {
	req := past.req
	if len(req.Command) > 0 || req.Context != "" || req.Dir != "" || len(e.cells) > 0 && past.language != e.language || !utf8.Valid(past.stdin) {
		e.on = false
		return
	}
	e.language = past.language
	e.cells = append(e.cells, exampleCell{req.Code, string(past.stdin)})
	e.grow(len(req.Code) + len(past.stdin))
}

func (e *example) grow(n int) {
	if e.size += n; e.size > maxExample {
		e.on = false
	}
	if !e.on {
		e.cells, e.files = nil, map[string]string{}
	}
}

// program returns the conversation as a line of a file of programs, or nil.
func (e *example) program(id, doc string) json.RawMessage {
	if !e.on || len(e.cells) == 0 {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"id": id, "doc": doc, "language": e.language, "cells": e.cells, "files": e.files})
	if err != nil || len(raw) > maxExample {
		return nil
	}
	return raw
}

// keep stores an example, if the configuration allows it and there is room for one more.
func (r *repetition) keep(class string, found []compare.Difference) {
	k := r.f.sh.Keep
	if !k.Code && !k.Output {
		return
	}
	ctx, cancel := context.WithTimeout(r.f.s.ctx, stepTime)
	defer cancel()
	err := r.put(ctx, class, found)
	if err != nil && ctx.Err() == nil {
		r.f.s.b.env.Logger().Warn("shadow: an example is not kept", "route", r.f.sh.route, "error", err)
	}
}

func (r *repetition) put(ctx context.Context, class string, found []compare.Difference) error {
	sh := r.f.sh
	x := ShadowExample{Time: time.Now(), Class: class}
	if sh.Keep.Output {
		for _, d := range found {
			d.Want, d.Got = shortened(d.Want), shortened(d.Got)
			x.Differences = append(x.Differences, d)
		}
	}
	alike := 0
	for i := 0; i < cmp.Or(sh.Keep.Examples, defaultExamples); {
		key := exampleKey(sh.route, sh.id, i)
		e, err := r.f.s.store.Get(ctx, key)
		if err != nil {
			return err
		}
		if e.Rev != "" {
			var other ShadowExample
			if e.Decode(&other) == nil && other.Class == class {
				if alike++; alike >= maxOfClass {
					return nil
				}
			}
			i++
			continue
		}
		if sh.Keep.Code {
			x.Program = r.example.program(fmt.Sprintf("%s/%d", sh.route, i), class)
		}
		if x.Program == nil && x.Differences == nil {
			return nil
		}
		if err = e.Encode(x); err != nil {
			return err
		}
		e.Expires = x.Time.Add(orDefault(sh.Keep.For, defaultKeep))
		// After a conflict the entry of another repetition is there, and it counts as well.
		if _, err = r.f.s.store.Put(ctx, key, e); !errors.Is(err, sessions.ErrConflict) {
			return err
		}
	}
	return nil
}

func shortened(text string) string {
	if len(text) <= maxShownText {
		return text
	}
	return strings.ToValidUTF8(text[:maxShownText], "") + "…"
}

// ReadShadowExamples returns the examples of a route that are kept.
func ReadShadowExamples(ctx context.Context, store sessions.Store, cfg Config, route string) (all []ShadowExample, err error) {
	s, ok := cfg.Shadows[route]
	if !ok {
		return nil, &executor.Error{Op: "shadow", Kind: executor.ErrInvalid, Ran: executor.RanNo, Err: fmt.Errorf("the configuration has no shadow of the route %q", route)}
	}
	for i := range cmp.Or(s.Keep.Examples, defaultExamples) {
		x, e, err := read[ShadowExample](ctx, store, exampleKey(route, s.id(), i))
		if err != nil {
			return nil, err
		}
		if e.Rev != "" {
			all = append(all, x)
		}
	}
	return all, nil
}
