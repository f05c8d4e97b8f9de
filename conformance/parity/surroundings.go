package parity

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/compare"
)

// inspectors print an object of JSON whose values are texts.
var (
	//go:embed inspect.py
	inspectPython string
	//go:embed inspect.js
	inspectJavaScript string

	inspectors = map[executor.Language]string{executor.Python: inspectPython, executor.JavaScript: inspectJavaScript}
)

// maxSurroundings bounds what a sandbox says about itself.
const (
	maxSurroundings = 10_000
	maxInspection   = 4 << 20
)

// Surroundings describes the interpreters of a backend: versions, platform, limits, modules that
// are missing, installed packages. The names begin with the language, as in "python.package.numpy".
// What a sandbox says about itself is not more than that.
func Surroundings(ctx context.Context, x executor.Executor) (Fields, error) {
	all := Fields{}
	for _, r := range x.Info().Capabilities.Languages {
		code, known := inspectors[r.Language]
		if !known {
			continue
		}
		f, err := inspect(ctx, x, r.Language, code)
		if err != nil {
			return nil, fmt.Errorf("surroundings of %s on %s: %w", r.Language, x.Info().Name, err)
		}
		for name, value := range f {
			all[string(r.Language)+"."+name] = compare.Clip(value)
		}
	}
	return all, nil
}

func inspect(ctx context.Context, x executor.Executor, language executor.Language, code string) (f Fields, err error) {
	s, err := x.Create(ctx, executor.Spec{Languages: []executor.Language{language}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := s.Run(ctx, executor.Request{Language: language, Code: code, Keep: maxInspection}, nil)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(r.Stdout, &f); err != nil {
		return nil, fmt.Errorf("the sandbox does not describe itself: %w", err)
	}
	if len(f) > maxSurroundings {
		return nil, fmt.Errorf("the sandbox says %d things of itself, more than %d", len(f), maxSurroundings)
	}
	return f, nil
}

// CompareSurroundings says where two backends differ, in the order of the names.
func CompareSurroundings(from, to Fields) (found []Difference) {
	found = compare.Differences([]Fields{from}, []Fields{to})
	for i := range found {
		found[i].Cell = 0
	}
	return found
}
