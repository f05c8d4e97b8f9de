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
	want := "2\n3\n5\n7\n11\n13\n17\n19\n23\n29\nthe first is 2\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
