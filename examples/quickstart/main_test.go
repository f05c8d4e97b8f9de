package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "42\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
