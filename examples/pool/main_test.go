package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`after [0-9.]+m?s`).ReplaceAllString(out.String(), "after TIME")
	if want := "cold: 42 after TIME\nwarm: 42 after TIME\nhits: 1, misses: 1\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
