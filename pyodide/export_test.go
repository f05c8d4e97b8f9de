package pyodide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/store"
)

// The environment variables that make a test process prepare a cache directory and, if set, stop on
// the way.
const (
	envPrepare = "EXECBROKER_TEST_PREPARE" // the directory
	envStop    = "EXECBROKER_TEST_STOP"    // the checkpoint at which it prints a line and waits to be killed
	envHold    = "EXECBROKER_TEST_HOLD"    // instead: code that it runs in a session before it waits to be killed
)

// PrepareChild does the work of such a process, and reports whether this process is one.
func PrepareChild() bool {
	if code := os.Getenv(envHold); code != "" {
		hold(code)
	}
	dir := os.Getenv(envPrepare)
	if dir == "" {
		return false
	}
	checkpoint = func(name string) {
		if stop := os.Getenv(envStop); stop != "" && strings.HasPrefix(name, stop) {
			fmt.Println("at", name)
			select {}
		}
	}
	ctx := executor.WithProgress(context.Background(), func(p executor.Progress) { fmt.Println("progress", p.What) })
	if err := Prepare(ctx, driver.Env{CacheDir: dir}, Config{}); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("done")
	return true
}

// userRuntime prepares the user's cache if necessary, and returns the directory of Deno and Pyodide
// in it.
func userRuntime(ctx context.Context) (string, error) {
	if err := Prepare(ctx, driver.Env{}, Config{}); err != nil {
		return "", fmt.Errorf("the tests need the runtime: %w", err)
	}
	dir, err := cacheDir(driver.Env{})
	if err != nil {
		return "", err
	}
	name, _, err := runtimeName()
	return filepath.Join(dir, name), err
}

// Seed fills a cache directory from the user's cache, except for Deno's analysis, which depends on
// the path. That takes half a minute of processor time less than Prepare. It returns the directory
// of the host program.
func Seed(ctx context.Context, cache string) (host string, err error) {
	installed, err := userRuntime(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "pyodide")
	_, id, err := runtimeName()
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.Symlink(installed, filepath.Join(dir, filepath.Base(installed)))
	}
	host = filepath.Join(dir, "host-"+key(id))
	if err == nil {
		err = os.CopyFS(host, os.DirFS(filepath.Join(filepath.Dir(installed), filepath.Base(host))))
	}
	return host, err
}

// hold runs code in a session, prints its process, that of the spare and its directory, and waits
// to be killed.
func hold(code string) {
	ctx := context.Background()
	x, err := Open(ctx, driver.Env{Owner: "test", Wrap: record}, Config{})
	if err != nil {
		panic(err)
	}
	s, err := x.Create(ctx, executor.Spec{})
	if err != nil {
		panic(err)
	}
	d := driverSession(s)
	sp := d.d.spares.listed()[0]
	<-sp.ready
	_, err = s.Run(ctx, executor.Request{Code: "print('on', flush=True)\n" + code}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStdout && string(ev.Data[:2]) == "on" {
			fmt.Println(d.h.cmd.Process.Pid, sp.pid(), d.dir)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	select {}
}

// ProgramLives reports whether the program of a directory of running sandboxes is alive.
func ProgramLives(runDir string) bool {
	unlock, err := store.TryLock(runDir + ".lock")
	if err == nil {
		unlock()
	}
	return errors.Is(err, store.ErrLocked)
}
