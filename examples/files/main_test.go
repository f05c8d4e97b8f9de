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
	want := `in/text.txt, 82 bytes
out/summary.json, 30 bytes
{"words": 18, "different": 13}
out/words.csv, 18 bytes
the,4
fox,2
dog,2
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
