package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// recipe says how a test image is made: from Debian's packages, or from another image by a command
// in it.
type recipe struct {
	Image    string
	Suite    string   // of Debian
	Packages []string // beside the essential ones
	Base     string   // image name
	Command  string   // of the shell
}

// recipeLabel holds the hash of the recipe that an image was made by, so that a changed recipe
// makes it anew.
const recipeLabel = "execbroker-test.recipe"

// packageList is shared with docker/image/Dockerfile.
const packageList = "docker/image/packages.txt"

// recipes returns those of make test, in the order in which they need each other.
func recipes() ([]recipe, error) {
	list, err := os.ReadFile(packageList)
	if err != nil {
		return nil, err
	}
	return []recipe{
		{Image: dockertest.Python, Suite: "trixie", Packages: section(list, "base")},
		{Image: dockertest.Trixie, Suite: "trixie", Packages: []string{"python3"}},
		{Image: dockertest.NoPython, Base: dockertest.Trixie, Command: "rm /usr/bin/python3*"},
		{Image: dockertest.NoCtypes, Base: dockertest.Trixie, Command: "rm -r /usr/lib/python3*/ctypes /usr/lib/python3*/lib-dynload/_ctypes.*"},
		{Image: dockertest.RootOnly, Base: dockertest.Trixie, Command: "cd /etc && for f in passwd group shadow gshadow; do sed -i /^root:/!d $f; done"},
	}, nil
}

// The images that only exhaustive tests use.
var (
	oldRecipes = []recipe{
		{Image: dockertest.Bookworm, Suite: "bookworm", Packages: []string{"python3"}},
		{Image: dockertest.Bullseye, Suite: "bullseye", Packages: []string{"python3"}},
	}
	jupyterRecipes = []recipe{{Image: dockertest.Jupyter, Suite: "trixie", Packages: []string{"python3", "python3-ipykernel", "python3-jupyter-client"}}}
	bareRecipes    = []recipe{{Image: dockertest.Bare, Suite: "bookworm", Packages: []string{"base-files"}}} // which is essential
	systemdRecipes = []recipe{{Image: dockertest.Systemd, Suite: "bookworm", Packages: []string{"systemd-sysv", "bubblewrap", "rpm", "curl"}}}
	npmRecipes     = []recipe{{Image: dockertest.Npm, Suite: "trixie", Packages: []string{"ca-certificates", "npm"}}}
)

// imagesStep returns a step that makes images.
func imagesStep(all []recipe) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return makeImages(ctx, all) }
}

// section returns the packages below a line "# name" of a list, up to an empty line.
func section(list []byte, name string) (packages []string) {
	_, rest, _ := bytes.Cut(list, []byte("\n# "+name+"\n"))
	for s := bufio.NewScanner(bytes.NewReader(rest)); s.Scan() && s.Text() != ""; {
		packages = append(packages, s.Text())
	}
	return packages
}

// ensureImages makes the test images that are not there. They come from Debian's packages, because
// that is the one place that every machine with Debian can reach; a registry is not.
func ensureImages(ctx context.Context) (string, error) {
	all, err := recipes()
	if err != nil {
		return "", err
	}
	return makeImages(ctx, all)
}

// makeImages makes those that are not there.
func makeImages(ctx context.Context, all []recipe) (string, error) {
	host, _, err := dockertest.Find(ctx) // not Host, which would make this process a user that its own stopEngine respects
	if err != nil {
		return "", err
	}
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return "", err
	}
	defer c.Close()
	var roots, derived []recipe
	for _, r := range all {
		made, err := r.isMade(ctx, c)
		switch {
		case err != nil:
			return "", err
		case made:
		case r.Base != "":
			derived = append(derived, r)
		default:
			roots = append(roots, r)
		}
	}
	if len(roots)+len(derived) == 0 {
		return fmt.Sprintf("found %d", len(all)), nil
	}
	var from source
	if len(roots) > 0 {
		if from, err = debian(ctx); err != nil {
			return "", err
		}
	}
	// Two at a time: one downloads while another unpacks. Independent roots first, then what is
	// made of them.
	errs := make([]error, len(roots))
	var wg sync.WaitGroup
	places := make(chan struct{}, 2)
	for i, r := range roots {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			errs[i] = r.bootstrap(ctx, c, from)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	for _, r := range derived {
		if err := r.derive(ctx, c); err != nil {
			return "", fmt.Errorf("%s: %w", r.Image, err)
		}
	}
	return fmt.Sprintf("found %d, made %d", len(all)-len(roots)-len(derived), len(roots)+len(derived)), nil
}

func (r recipe) hash() string {
	b, _ := json.Marshal(r) // strings only
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// isMade reports whether the engine has the image as r says.
func (r recipe) isMade(ctx context.Context, c *client.Client) (bool, error) {
	i, err := c.ImageInspect(ctx, r.Image)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil && i.Config != nil && i.Config.Labels[recipeLabel] == r.hash(), err
}

// source is where Debian's packages come from: a mirror, and how apt downloads from it.
type source struct {
	mirror  string
	options []string
}

// debian returns the source that this machine has. make release, which prepares nothing, gets
// mmdebstrap here.
func debian(ctx context.Context) (s source, err error) {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		if err := install(ctx, "mmdebstrap"); err != nil {
			return s, err
		}
	}
	if s.mirror, err = debianMirror(); err != nil {
		return s, err
	}
	s.options, err = aptOptions(ctx)
	return s, err
}

// mmdebstrap returns the command that makes a root: a directory, or "-" for a tar on its standard
// output.
func (r recipe) mmdebstrap(ctx context.Context, to string, from source) *exec.Cmd {
	args := []string{"--variant=minbase", "--include=" + strings.Join(r.Packages, ","),
		"--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"}
	for _, o := range from.options {
		args = append(args, "--aptopt="+o)
	}
	cmd := exec.CommandContext(ctx, "mmdebstrap", append(args, r.Suite, to, strings.ReplaceAll(from.mirror, suitePlace, r.Suite))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it removes its directory
	return cmd
}

// bootstrap makes a root directory and streams it into the engine.
func (r recipe) bootstrap(ctx context.Context, c *client.Client, from source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := r.mmdebstrap(ctx, "-", from)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	root, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	res, err := c.ImageImport(ctx, client.ImageImportSource{Source: root, SourceName: "-"}, r.Image, client.ImageImportOptions{Changes: r.changes()})
	if err == nil {
		err = finish(res)
	}
	if err != nil {
		cancel()
	}
	// The engine takes a tar that was cut off for a whole one, so the image counts only if
	// mmdebstrap says so.
	if werr := cmd.Wait(); werr != nil {
		_, rerr := c.ImageRemove(context.WithoutCancel(ctx), r.Image, client.ImageRemoveOptions{})
		if errdefs.IsNotFound(rerr) {
			rerr = nil
		}
		return errors.Join(fmt.Errorf("%s: mmdebstrap: %w: %s", r.Image, werr, tail(stderr.String(), 500)), err, rerr)
	}
	return err
}

// derive runs the command in a container of the base image and makes an image of what is left.
func (r recipe) derive(ctx context.Context, c *client.Client) (err error) {
	made, err := c.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: r.Base, Cmd: []string{"/bin/sh", "-ec", r.Command}},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return err
	}
	defer func() {
		_, rerr := c.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true})
		err = errors.Join(err, rerr)
	}()
	wait := c.ContainerWait(ctx, made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := c.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return err
	}
	select {
	case err := <-wait.Error:
		return err
	case w := <-wait.Result:
		if w.StatusCode != 0 {
			return fmt.Errorf("%s: exit code %d", r.Command, w.StatusCode)
		}
	}
	_, err = c.ContainerCommit(ctx, made.ID, client.ContainerCommitOptions{Reference: r.Image, Changes: r.changes()})
	return err
}

func (r recipe) changes() []string {
	return []string{`CMD ["/bin/sh"]`, "LABEL " + recipeLabel + "=" + r.hash()}
}

// finish reads the progress of an import, in which errors hide.
func finish(r io.ReadCloser) error {
	defer r.Close()
	d := json.NewDecoder(r)
	for {
		var m struct{ Error string }
		if err := d.Decode(&m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
	}
}

// aptOptions returns the settings of this machine's apt that say how to download: proxies,
// timeouts, dates.
func aptOptions(ctx context.Context) (options []string, err error) {
	out, err := output(ctx, "apt-config", "dump")
	if err != nil {
		return nil, err
	}
	keys := []string{"Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries"}
	for line := range strings.Lines(out) {
		if slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(line, k) }) {
			options = append(options, strings.TrimSpace(line))
		}
	}
	return options, nil
}
