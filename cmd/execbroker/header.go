package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// headerForm matches a block of inline script metadata (PEP 723), as in its specification.
var headerForm = regexp.MustCompile(`(?m)^# /// ([a-zA-Z0-9-]+)$\s((?:^#(?:| .*)$\s)+)^# ///$`)

// header returns the dependencies of a Python script, from a block that begins with "# /// script".
// A script without such a block has none.
func header(code string) (packages []string, err error) {
	var blocks []string
	for _, m := range headerForm.FindAllStringSubmatch(strings.ReplaceAll(code, "\r\n", "\n"), -1) {
		if m[1] == "script" {
			blocks = append(blocks, m[2])
		}
	}
	switch len(blocks) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, errors.New("the code has several blocks \"# /// script\"; PEP 723 allows one")
	}
	var text strings.Builder
	for line := range strings.Lines(blocks[0]) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	var meta struct {
		Dependencies []string `toml:"dependencies"`
	}
	if err := toml.Unmarshal([]byte(text.String()), &meta); err != nil {
		return nil, fmt.Errorf("the block \"# /// script\" of the code: %w", err)
	}
	return meta.Dependencies, nil
}
