package pyodide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/missing"
	"github.com/execbroker/execbroker/internal/store"
	"github.com/execbroker/execbroker/pyodide/internal/confine"
)

// setup is the advice to prepare in advance.
const setup = "run `execbroker setup`; it is done on first use as well"

// Doctor checks what the backend needs. It changes nothing, and says how to fix what is missing. It
// stops at the first problem, because the later checks depend on it. The caller must validate the
// settings.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	if err := cfg.Validate(); err != nil {
		return []driver.Check{{Name: "configuration", Detail: strings.ReplaceAll(err.Error(), "\n", "; "), Fix: "correct the settings of the backend"}}
	}
	cache, cacheErr := cacheDir(env)
	s := storeIn(cache)
	var in installation
	var checks []driver.Check
	for _, step := range []struct {
		name string
		do   func() (detail, fix string, err error)
	}{
		{"platform", func() (string, string, error) {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if _, ok := denoPackages[platform]; !ok {
				return "", "", noDeno()
			}
			return platform, "", nil
		}},
		{"confinement", func() (string, string, error) { return doctorLayer(ctx, cfg) }},
		{"cache directory", func() (string, string, error) {
			if cacheErr != nil {
				return "", "", cacheErr
			}
			return cache, "", writable(cache)
		}},
		{"runtime", func() (detail, fix string, err error) {
			if in, fix, err = doctorRuntime(ctx, s, cfg); err == nil {
				err = in.try(ctx)
			}
			return fmt.Sprintf("Deno %s and Pyodide %s in %s", DenoVersion, PyodideVersion, filepath.Dir(filepath.Dir(in.pyodide))), fix, err
		}},
		{"prepared", func() (string, string, error) { return doctorPrepared(s, cfg) }},
	} {
		detail, fix, err := step.do()
		if err != nil {
			c := missing.Check(step.name, err, fix)
			c.Setup = errors.Is(err, errNotYet)
			return append(checks, c)
		}
		checks = append(checks, driver.Check{Name: step.name, OK: true, Detail: detail})
	}
	return checks
}

// doctorLayer says which layer of the operating system is around a sandbox. If no layer works, that
// is an error only if the configuration requires one. Otherwise the sandbox is weaker, and the
// declared isolation says so.
func doctorLayer(ctx context.Context, cfg Config) (detail, fix string, err error) {
	m, skipped, err := chooseLayer(ctx, cfg.withDefaults().OSLayer, false)
	if err != nil {
		return "", "install bubblewrap, or set os_layer to another value", err
	}
	detail = fmt.Sprintf("%s: isolation %s", m, isolation(m))
	if js := scriptIsolation(m); js != "" && javascriptHere {
		detail += fmt.Sprintf(", of JavaScript %s", js)
	}
	if err := errors.Join(skipped...); err != nil {
		detail += "; not used: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if err := confine.Adjustable(m); err != nil {
		detail += "; no limit on processor time besides the clocks: " + err.Error()
	}
	return detail, "", nil
}

// doctorRuntime looks for an installation. If there is none, it checks whether one could be
// installed.
func doctorRuntime(ctx context.Context, s store.Store, cfg Config) (in installation, fix string, err error) {
	if cfg.RuntimeDir != "" {
		in, err = find(cfg.RuntimeDir)
		return in, fmt.Sprintf("run `npm install %s` in %s", npmPackages, cfg.RuntimeDir), err
	}
	name, _, err := runtimeName()
	if err != nil {
		return in, "", err
	}
	if dir := packaged(name); dir != "" {
		in, err = find(dir)
		return in, "install the package of execbroker again", err
	}
	dir := filepath.Join(s.Dir, name)
	if store.CheckSizes(dir) == nil {
		in, err = find(dir)
		return in, setup, err
	}
	if err := room(s.Dir, neededBytes); err != nil {
		return in, "", err
	}
	npm, err := findNPM(ctx)
	if err == nil {
		err = askRegistry(ctx, npm)
	}
	if err != nil {
		return in, "", err
	}
	return in, setup, fmt.Errorf("%w: Deno %s and Pyodide %s", errNotYet, DenoVersion, PyodideVersion)
}

// errNotYet says that Prepare, and the first use, make what is not there.
var errNotYet = errors.New("not there yet")

// doctorPrepared checks whether sandboxes start fast.
func doctorPrepared(s store.Store, cfg Config) (detail, fix string, err error) {
	_, id, err := installedIfThere(s, cfg)
	if err != nil {
		return "", setup, err
	}
	dir := filepath.Join(s.Dir, "host-"+key(id))
	err = store.CheckHashes(dir)
	if os.IsNotExist(err) {
		err = fmt.Errorf("%w: the standard library and the memory snapshot", errNotYet)
	}
	return dir, setup, err
}
