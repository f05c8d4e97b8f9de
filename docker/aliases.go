package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// content names a directory of an image.
type content struct{ image, dir string }

// bare refuses aliases that would hide something of the image of a container that has not started.
func (e *engine) bare(ctx context.Context, id string, x *box) error {
	for _, dir := range x.parents() {
		if err := e.empty(ctx, id, x.image.id, dir); err != nil {
			return err
		}
	}
	return nil
}

// empty refuses an alias in a directory in which the image has something, because what the alias
// needs there would hide it. The container was made from the image and has not started. What an
// image holds never changes, so the engine is asked once.
func (e *engine) empty(ctx context.Context, container, image, dir string) error {
	e.mu.Lock()
	found, known := e.contents[content{image, dir}]
	e.mu.Unlock()
	if !known {
		var err error
		found, known, err = e.look(ctx, container, dir)
		if err != nil {
			return e.fail(ctx, err)
		}
	}
	if known {
		e.mu.Lock()
		if len(e.contents) < maxContents {
			e.contents[content{image, dir}] = found
		}
		e.mu.Unlock()
	}
	if found != "" {
		return unsupported(fmt.Errorf("aliases: the image has %s, and an alias in %s would hide it", found, dir), "alias:"+dir)
	}
	return nil
}

// maxContents bounds what is remembered of images.
const maxContents = 1000

// look says what is in a directory of a container that has not started, or what there is instead of
// a directory. It is not known of a directory that is not there, because the engine says the same
// of a container that is gone.
func (e *engine) look(ctx context.Context, container, dir string) (found string, known bool, err error) {
	got, err := e.CopyFromContainer(ctx, container, client.CopyFromContainerOptions{SourcePath: dir})
	if errdefs.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer got.Content.Close()
	entries := tar.NewReader(got.Content)
	head, err := entries.Next()
	if err == nil && head.Typeflag != tar.TypeDir {
		return dir + ", which is no directory", true, nil
	}
	if err == nil {
		head, err = entries.Next()
	}
	switch {
	case errors.Is(err, io.EOF):
		return "", true, nil
	case err != nil:
		return "", false, err
	}
	return fmt.Sprintf("%.100q in %s", head.Name, dir), true, nil
}
