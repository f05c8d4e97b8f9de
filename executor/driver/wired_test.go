package driver

import (
	"context"
	"reflect"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestOptional hands the engine what a driver and a session implement, and nothing else. A function
// of the engine that is new fails here until it is handed over.
func TestOptional(t *testing.T) {
	var all, none struct{ Session }
	s, err := sandbox(struct {
		Session
		Detacher
		Refresher
		Resetter
		KeepAliver
		Suspender
		Installer
		Filer
		Dialer
		Aser
	}{Session: all}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := sandbox(none, nil)
	if err != nil {
		t.Fatal(err)
	}
	always := []string{"Type", "Info", "Run", "Destroy"}
	compare(t, *s, *bare, always)
	b := backend(struct {
		idle
		Attacher
		Observer
		Lister
	}{})
	compare(t, b, backend(idle{}), []string{"Capabilities", "Create", "Close"})
}

func compare(t *testing.T, full, bare any, always []string) {
	t.Helper()
	f, b := reflect.ValueOf(full), reflect.ValueOf(bare)
	for i := range f.NumField() {
		name := f.Type().Field(i).Name
		must := false
		for _, a := range always {
			must = must || a == name
		}
		if f.Field(i).IsZero() && name != "Capabilities" {
			t.Errorf("%s.%s is implemented and not handed over", f.Type(), name)
		}
		if !b.Field(i).IsZero() && !must {
			t.Errorf("%s.%s is handed over and not implemented", f.Type(), name)
		}
	}
}

// idle is a driver without sessions.
type idle struct{}

func (idle) Capabilities() executor.Capabilities              { return executor.Capabilities{} }
func (idle) Create(context.Context, *Create) (Session, error) { return nil, nil }
func (idle) Close() error                                     { return nil }
