// Package standin is what the stand-ins of providers share: a Docker engine, and containers on it
// that end with the stand-in, however that ends.
package standin

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/internal/store"
)

// Engine is a Docker engine as one stand-in uses it. Its containers carry the name of a file that
// the stand-in holds while it lives: a lock ends with its process.
type Engine struct {
	*client.Client
	name       string
	host, path string
	unlock     func()
}

// Open connects to an engine, at an address like "unix:///var/run/docker.sock" or, where that is
// empty, that of DOCKER_HOST or else the default socket. It fails if the engine does not answer or
// does not run Linux containers. name is that of the stand-in, in its labels and its user agent.
func Open(ctx context.Context, name, address string) (*Engine, error) {
	c, err := connect(ctx, name, address)
	if err != nil {
		return nil, err
	}
	e := &Engine{Client: c, name: name}
	if err := e.claim(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return e, nil
}

func connect(ctx context.Context, name, address string) (*client.Client, error) {
	// No connection outlives its request: who counts what is left in a process of tests need not
	// know about them.
	t := &http.Transport{DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}} // HTTP/1 only
	opts := []client.Opt{client.WithHTTPClient(&http.Client{Transport: t}), client.WithUserAgent("execbroker-" + name)}
	if address != "" {
		opts = append(opts, client.WithHost(address))
	} else {
		opts = append(opts, client.FromEnv)
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	p, err := c.Ping(ctx, client.PingOptions{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), c.Close())
	}
	if p.OSType != "" && p.OSType != "linux" {
		return nil, errors.Join(fmt.Errorf("engine: it runs %s containers; linux is needed", p.OSType), c.Close())
	}
	return c, nil
}

// claim takes the lock.
func (e *Engine) claim() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "execbroker", e.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	e.host, e.path = host, filepath.Join(dir, hex.EncodeToString(b)+".lock")
	e.unlock, err = store.TryLock(e.path)
	return err
}

// label is the name of a label of containers: "host", the machine of the stand-in, "lock", the file
// on it, or "thing", what the container is.
func (e *Engine) label(name string) string { return "execbroker." + e.name + "." + name }

// Labels are those of a container. thing says what it is in the words of the provider: see Things.
func (e *Engine) Labels(thing string) map[string]string {
	return map[string]string{e.label("host"): e.host, e.label("lock"): e.path, e.label("thing"): thing}
}

// Filter is the label, with its value, that all containers of this stand-in have and no others.
func (e *Engine) Filter() string { return e.label("lock") + "=" + e.path }

// dead reports whether the stand-in that held a lock file has ended. A file that cannot be read is
// another user's, who may live.
func dead(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	unlock, err := store.TryLock(path)
	if err != nil {
		return false
	}
	unlock()
	return true
}

func (e *Engine) list(ctx context.Context, label string) ([]container.Summary, error) {
	list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return list.Items, nil
}

// Sweep removes what stand-ins of the same name on this machine have left that were killed.
func (e *Engine) Sweep(ctx context.Context, log *slog.Logger) error {
	list, err := e.list(ctx, e.label("host")+"="+e.host)
	if err != nil {
		return err
	}
	locks := map[string]bool{}
	for _, c := range list {
		path := c.Labels[e.label("lock")]
		gone, known := locks[path]
		if !known {
			gone = path != e.path && dead(path)
			locks[path] = gone
		}
		if !gone {
			continue
		}
		log.Info("removing the container of a stand-in that was killed", "thing", c.Labels[e.label("thing")])
		if err := e.Remove(ctx, c.ID); err != nil && !errdefs.IsConflict(err) { // or another one is at it
			return err
		}
	}
	for path, gone := range locks {
		if !gone {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Things returns what the containers of this stand-in are that the engine has, dead ones too: what
// is really there, whatever the stand-in believes.
func (e *Engine) Things(ctx context.Context) ([]string, error) {
	list, err := e.list(ctx, e.Filter())
	var names []string
	for _, c := range list {
		names = append(names, c.Labels[e.label("thing")])
	}
	return names, err
}

// Remove ends a container and removes it with its volumes. One that is gone is not an error.
func (e *Engine) Remove(ctx context.Context, id string) error {
	_, err := e.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("engine: remove container %.12s: %w", id, err)
	}
	return nil
}

// removePause is how long Removed waits before it asks again.
const removePause = 50 * time.Millisecond

// Removed removes a container and waits until it is gone, also where the engine is removing it
// already.
func (e *Engine) Removed(ctx context.Context, id string) error {
	for {
		err := e.Remove(ctx, id)
		if !errdefs.IsConflict(err) {
			return err
		}
		select {
		case <-time.After(removePause):
		case <-ctx.Done():
			return err
		}
	}
}

// Release removes every container of this stand-in, gives its lock back and leaves the engine. It
// may be called again after an error.
func (e *Engine) Release(ctx context.Context) error {
	list, err := e.list(ctx, e.Filter())
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		errs = append(errs, e.Removed(ctx, c.ID))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = os.Remove(e.path) // nobody else uses a file of that name
	e.unlock()
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, e.Close())
}
