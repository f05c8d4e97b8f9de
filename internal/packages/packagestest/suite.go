package packagestest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/execbroker/execbroker/executor"
)

// Suite is the source of packages for a run of the conformance suite: six for Python and ms for
// JavaScript.
type Suite struct {
	Dir      string // directory of wheels, which can also contain a cache
	Index    string // address of an index of the wheels
	Registry string // address of a registry of npm packages

	index    *Index
	registry *Registry
}

// Missing is a package that the suite requests and that does not exist.
const Missing = "conformance-no-such-package"

// Allow lists the packages that the suite requests.
func Allow() map[executor.Language][]string {
	return map[executor.Language][]string{executor.Python: {"six", Missing}, executor.JavaScript: {"ms", Missing}}
}

// StartSuite serves the packages of the suite. The caller closes it.
func StartSuite(ctx context.Context, listen func(context.Context) (net.Listener, error)) (_ *Suite, err error) {
	s := &Suite{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Dir, err = os.MkdirTemp("", "execbroker-conformance-"); err != nil {
		return nil, err
	}
	name, wheel, err := Wheel("six", "1.0", nil, Module("six", "1.0"))
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, name), wheel, 0o600)
	}
	if err != nil {
		return nil, err
	}
	l, err := listen(ctx)
	if err != nil {
		return nil, err
	}
	s.index = StartIndex(l, s.Dir)
	if l, err = listen(ctx); err != nil {
		return nil, err
	}
	s.registry = StartRegistry(l)
	s.registry.Publish("ms", "1.0.0", nil, Named("package/index.js", "module.exports = 1"))
	s.Index, s.Registry = s.index.URL+"/simple", s.registry.URL
	return s, nil
}

// Close stops the servers and removes the directory.
func (s *Suite) Close() error {
	if s.index != nil {
		s.index.Close()
	}
	if s.registry != nil {
		s.registry.Close()
	}
	return os.RemoveAll(s.Dir)
}
