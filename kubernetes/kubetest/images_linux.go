package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pauseImage is the image of the first container of each pod.
const pauseImage = "localhost/execbroker-pause:1"

// containerd starts it and gives it the images that it does not have. What earlier containers it
// remembers it forgets.
func (c *Cluster) containerd(ctx context.Context, images []Image) error {
	if err := c.start("containerd", "--config", c.path("containerd.toml")); err != nil {
		return err
	}
	err := c.await(ctx, "containerd", func(context.Context) error { return run(c.ctr("version")) })
	if err != nil {
		return err
	}
	if err := c.forget(); err != nil {
		return err
	}
	pause, err := os.ReadFile(filepath.Join(c.programs, "pause"))
	if err != nil {
		return err
	}
	images = append([]Image{ImageOf(pauseImage, "pause", pause)}, images...)
	known := map[string]string{}
	record := c.path("images.json")
	if b, err := os.ReadFile(record); err == nil {
		if err := json.Unmarshal(b, &known); err != nil {
			return err
		}
	}
	for _, i := range images {
		if known[i.Name] == i.ID {
			continue
		}
		if err := c.load(i); err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		known[i.Name] = i.ID
		b, err := json.Marshal(known)
		if err != nil {
			return err
		}
		if err := os.WriteFile(record, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ctr returns a command to containerd.
func (c *Cluster) ctr(args ...string) *exec.Cmd {
	return c.inside("ctr", append([]string{"-a", c.path("run", "containerd.sock"), "-n", "k8s.io"}, args...)...)
}

// load imports an image.
func (c *Cluster) load(i Image) error {
	file := c.path("image.tar")
	defer os.Remove(file)
	if err := i.Save(file); err != nil {
		return err
	}
	return run(c.ctr("images", "import", file))
}

// forget removes the containers of the last cluster, which run no more.
func (c *Cluster) forget() error {
	out, err := c.ctr("containers", "ls", "-q").Output()
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(string(out)) {
		if err := run(c.ctr("containers", "rm", id)); err != nil {
			return err
		}
	}
	return nil
}

// Containers returns the containers of the node, running or not, each with its ID, its pod and what
// it is there. The cluster itself has none.
func (c *Cluster) Containers() (all []string, err error) {
	out, err := c.ctr("containers", "ls", "-q").Output()
	if err != nil {
		return nil, err
	}
	for _, id := range strings.Fields(string(out)) {
		info, err := c.ctr("containers", "info", id).Output()
		if err != nil {
			continue // it is gone by now
		}
		var what struct{ Labels map[string]string }
		if err := json.Unmarshal(info, &what); err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprintf("%s: %s of pod %s", id, what.Labels["io.cri-containerd.kind"], what.Labels["io.kubernetes.pod.name"]))
	}
	return all, nil
}

// Running returns the IDs of the containers in which something runs. Those whose pods are gone and
// that have ended are not among them: the kubelet removes these once a minute.
func (c *Cluster) Running() (ids []string, err error) {
	out, err := c.ctr("tasks", "ls").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] != "TASK" && f[2] != "STOPPED" {
			ids = append(ids, f[0])
		}
	}
	return ids, nil
}

func ignoreExisting(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// copyCPUSets lets the groups of the kubelet have processors, which a new group of version 1 has
// none of.
func copyCPUSets() error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(groups), groupName, "cpuset.cpus"))
	if err != nil {
		return err
	}
	for _, file := range found {
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			dir := filepath.Dir(file)
			b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
