package conformance

import (
	"github.com/execbroker/execbroker/conformance/cases"
	"github.com/execbroker/execbroker/executor"
)

// engine is a T as package cases knows it.
type engine struct{ *T }

// StartChild implements cases.Engine.
func (e engine) StartChild(name string, in []byte) cases.Process { return e.T.StartChild(name, in) }

// OpenAs implements cases.Engine.
func (e engine) OpenAs(owner string) executor.Executor {
	return e.Open(map[string]string{ParamOwner: owner})
}

// Created implements cases.Engine.
func (e engine) Created(s executor.Session, err error) executor.Session { return e.created(s, err) }

// ID implements cases.Engine.
func (e engine) ID() string { return e.c.ID }

// Labels implements cases.Engine.
func (e engine) Labels() map[string]string {
	return map[string]string{LabelRun: e.s.run, LabelCase: e.c.ID}
}

// Processes implements cases.Engine.
func (e engine) Processes() map[string]string { return processes(e.s) }

// Cleanup implements cases.Engine.
func (e engine) Cleanup(f func()) { e.cleanup(f) }

// Protect implements cases.Engine.
func (e engine) Protect(f func()) {
	defer e.recover()
	f()
}

// allCases returns the cases of package cases.
func allCases() (defs []caseDef) {
	form := func(f func(*cases.T)) func(*T) {
		if f == nil {
			return nil
		}
		return func(t *T) { f(&cases.T{Engine: engine{t}}) }
	}
	for _, c := range cases.All() {
		d := caseDef{
			ID: c.ID, Doc: c.Doc, Feature: c.Feature, Needs: c.Needs, PerLanguage: c.PerLanguage, Only: c.Only,
			Programs: c.Programs, Bound: c.Bound, Alone: c.Alone, Positive: form(c.Positive), Negative: form(c.Negative),
		}
		if c.Unsuited != nil {
			d.unsuited = func(s *suite) string { return c.Unsuited(s.info.Capabilities) }
		}
		defs = append(defs, d)
	}
	return defs
}

// childOf returns the function that a child of the suite runs under a name.
func childOf(name string) (f childFunc, ok bool) {
	if f, ok = testChildren[name]; ok {
		return f, true
	}
	c, ok := cases.Children()[name]
	return func(t *T, in []byte) []byte { return c(&cases.T{Engine: engine{t}}, in) }, ok
}
