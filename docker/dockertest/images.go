package dockertest

import (
	"context"
	"io"

	"github.com/moby/moby/client"
)

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
