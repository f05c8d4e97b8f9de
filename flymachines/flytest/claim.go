package flytest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/internal/store"
)

// The labels of containers.
const (
	labelHost    = "execbroker.flytest.host"    // the machine of the emulator
	labelLock    = "execbroker.flytest.lock"    // the file on it that the emulator holds while it lives
	labelMachine = "execbroker.flytest.machine" // "app/id"
)

// claim tells other emulators which containers are those of a living one. A lock ends with its
// process, however that ends.
type claim struct {
	host, path string
	unlock     func()
}

func newClaim() (*claim, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "execbroker", "flytest")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	c := &claim{host: host, path: filepath.Join(dir, hex.EncodeToString(b)+".lock")}
	c.unlock, err = store.TryLock(c.path)
	return c, err
}

// release gives the lock back. Nobody else uses a file of that name.
func (c *claim) release() error {
	err := os.Remove(c.path)
	c.unlock()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// dead reports whether the emulator that held a lock file has ended. A file that cannot be read is
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

// sweep removes what emulators on this machine have left that were killed.
func (s *Server) sweep(ctx context.Context) error {
	list, err := s.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelHost+"="+s.claim.host)})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	locks := map[string]bool{}
	for _, c := range list.Items {
		path := c.Labels[labelLock]
		gone, known := locks[path]
		if !known {
			gone = path != s.claim.path && dead(path)
			locks[path] = gone
		}
		if !gone {
			continue
		}
		s.cfg.Log.Info("removing the container of an emulator that was killed", "machine", c.Labels[labelMachine])
		if err := s.remove(ctx, c.ID); err != nil && !errdefs.IsConflict(err) { // or another emulator is at it
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

// removeOwn removes every container of this emulator.
func (s *Server) removeOwn(ctx context.Context) error {
	list, err := s.own(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		errs = append(errs, s.removed(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// Containers returns the Machines, as "app/id", whose containers the engine has, dead ones too:
// what is really there, whatever the emulator believes.
func (s *Server) Containers(ctx context.Context) ([]string, error) {
	list, err := s.own(ctx)
	var names []string
	for _, c := range list {
		names = append(names, c.Labels[labelMachine])
	}
	return names, err
}

func (s *Server) own(ctx context.Context) ([]container.Summary, error) {
	list, err := s.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelLock+"="+s.claim.path)})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return list.Items, nil
}

// remove ends a container and removes it with its volumes. One that is gone is not an error.
func (s *Server) remove(ctx context.Context, id string) error {
	_, err := s.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("engine: remove container %.12s: %w", id, err)
	}
	return nil
}

// removed removes a container and waits until it is gone, also where the engine is removing it
// already.
func (s *Server) removed(ctx context.Context, id string) error {
	for {
		err := s.remove(ctx, id)
		if !errdefs.IsConflict(err) {
			return err
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return err
		}
	}
}
