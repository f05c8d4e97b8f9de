package main

import (
	"context"
	"fmt"
	"slices"
)

// modulePath is the path of what is tested.
const modulePath = "github.com/execbroker/execbroker"

// needsSandbox reports whether the tests of a package need what prepare makes available, and
// minutes.
func (p *testPackage) needsSandbox() bool {
	return p.deps[modulePath+"/docker/dockertest"] || p.deps[modulePath+"/runner"] ||
		slices.ContainsFunc(subjects, func(s subject) bool { return p.deps[modulePath+"/"+s.dir] })
}

// short runs the tests that need nothing but Go, Python and Node.js and are done in a minute or
// two: what a change may have broken shows most often there. It looks for no data races, which test
// does.
func short(ctx context.Context, o options) (tally, error) {
	all, err := testPackages(ctx, everything)
	if err != nil {
		return tally{}, err
	}
	var paths []string
	for _, p := range all {
		if !p.needsSandbox() {
			paths = append(paths, p.path)
		}
	}
	if len(paths) == 0 {
		return tally{}, fmt.Errorf("go list ./... finds no package to test")
	}
	headline("go test -short of %d packages", len(paths))
	res := newResults(o.out, ".", false)
	_, err = res.run(ctx, []string{"-short", "-shuffle=on", "-vet=off"}, paths...)
	res.print(false)
	return res.sum(), err
}
