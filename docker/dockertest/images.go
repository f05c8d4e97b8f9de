package dockertest

import (
	"context"
	"io"

	"github.com/moby/moby/client"
)

// Name gives an image of the tests a further name, which users have in a registry, unless there is
// an image of that name. An engine that internal/ci has not started is somebody's own, and pulls
// what it lacks: it stays as it is. The function that is returned takes the name away again.
func Name(ctx context.Context, host, image, name string) (undo func(context.Context) error, err error) {
	undo = func(context.Context) error { return nil }
	if at, ours, err := Find(ctx); err != nil || !ours || at != host {
		return undo, err
	}
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return undo, err
	}
	defer c.Close()
	of, err := c.ImageInspect(ctx, image)
	if err != nil {
		return undo, err
	}
	if there, err := c.ImageInspect(ctx, name); err == nil && there.ID != of.ID { // the same is left from a run that was killed
		return undo, nil
	}
	if _, err := c.ImageTag(ctx, client.ImageTagOptions{Source: image, Target: name}); err != nil {
		return undo, err
	}
	return func(ctx context.Context) error {
		c, err := client.New(client.WithHost(host))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.ImageRemove(ctx, name, client.ImageRemoveOptions{})
		return err
	}, nil
}

// CopyImage gives an image of one engine to another. A test that breaks engines makes one of its
// own and needs an image there.
func CopyImage(ctx context.Context, from, to, image string) (err error) {
	src, err := client.New(client.WithHost(from))
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := client.New(client.WithHost(to))
	if err != nil {
		return err
	}
	defer dst.Close()
	r, err := src.ImageSave(ctx, []string{image})
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := dst.ImageLoad(ctx, r, client.ImageLoadWithQuiet(true))
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = io.Copy(io.Discard, w)
	return err
}
