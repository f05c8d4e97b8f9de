package kubetest

import (
	"context"
	"io"
	"os"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// EngineImages returns images of the Docker engine of tests.
func EngineImages(ctx context.Context, names ...string) (images []Image, err error) {
	host, err := dockertest.Host()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, name := range names {
		found, err := c.ImageInspect(ctx, name)
		if err != nil {
			return nil, err
		}
		images = append(images, Image{Name: name, ID: found.ID, Save: func(file string) error { return save(ctx, host, name, file) }})
	}
	return images, nil
}

// save writes an image of an engine to a file.
func save(ctx context.Context, host, name, file string) (err error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.ImageSave(ctx, []string{name})
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
