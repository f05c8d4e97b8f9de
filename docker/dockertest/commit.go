package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Commit makes the image name of what a program of Python, run by root, makes of the image base,
// with changes as in a Dockerfile. remove removes it.
func Commit(ctx context.Context, host, name, base, program string, changes ...string) (remove func() error, err error) {
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	made, err := c.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: base, Entrypoint: []string{"python3", "-c", program}, AttachStdout: true, AttachStderr: true},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		_, rerr := c.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true})
		err = errors.Join(err, rerr)
	}()
	at, err := c.ContainerAttach(ctx, made.ID, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if _, err := c.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	if _, err := stdcopy.StdCopy(&said, &said, at.Reader); err != nil || said.Len() > 0 {
		return nil, fmt.Errorf("making %s: it said %q: %w", name, said.String(), err)
	}
	if _, err := c.ContainerCommit(ctx, made.ID, client.ContainerCommitOptions{Reference: name, Changes: changes}); err != nil {
		return nil, err
	}
	return func() error {
		c, err := client.New(client.WithHost(host))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true})
		return err
	}, nil
}
