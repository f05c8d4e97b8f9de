package main

import (
	"slices"
	"strings"
	"testing"
)

func TestHeader(t *testing.T) {
	for name, test := range map[string]struct {
		code string
		want []string
		err  string
	}{
		"none":    {code: "print(1)\n"},
		"one":     {code: "#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"requests<3\", # why\n#   'rich',\n# ]\n#\n# [tool.uv]\n# x = 1\n# ///\nprint(1)\n", want: []string{"requests<3", "rich"}},
		"crlf":    {code: "# /// script\r\n# dependencies = [\"six\"]\r\n# ///\r\n", want: []string{"six"}},
		"empty":   {code: "# /// script\n# dependencies = []\n# ///\n"},
		"other":   {code: "# /// pyproject\n# dependencies = [\"six\"]\n# ///\n"},
		"open":    {code: "# /// script\n# dependencies = [\"six\"]\nprint(1)\n"},
		"several": {code: strings.Repeat("# /// script\n# dependencies = []\n# ///\n\n", 2), err: "several"},
		"broken":  {code: "# /// script\n# dependencies = [\n# ///\n", err: "script"},
		"type":    {code: "# /// script\n# dependencies = \"six\"\n# ///\n", err: "script"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := header(test.code)
			if !slices.Equal(got, test.want) || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
