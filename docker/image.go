package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// image is what of an image decides how its containers are made.
type image struct {
	id      string   // of the content: a tag may move between two calls
	volumes []string // paths that the image declares as volumes
}

// image finds the image, pulling it if the policy says so.
func (e *engine) image(ctx context.Context, name string, policy Pull, f *facts) (image, error) {
	if policy == PullAlways {
		if err := e.pull(ctx, name); err != nil {
			return image{}, err
		}
	}
	img, err := e.inspect(ctx, name, f)
	if errdefs.IsNotFound(err) && (policy == PullMissing || policy == "") {
		if err := e.pull(ctx, name); err != nil {
			return image{}, err
		}
		img, err = e.inspect(ctx, name, f)
	}
	switch {
	case errdefs.IsNotFound(err) && policy == PullNever:
		err = fmt.Errorf("image %s is not there and pull is %s; docker pull %[1]s gets it", name, PullNever)
		return img, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	case errdefs.IsNotFound(err):
		return img, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("image %s was pulled and is not there", name))
	}
	return img, err
}

// inspect returns the image, or an error that is errdefs.IsNotFound as it is.
func (e *engine) inspect(ctx context.Context, name string, f *facts) (image, error) {
	ctx, cancel := e.answer(ctx)
	defer cancel()
	i, err := e.ImageInspect(ctx, name)
	switch {
	case errdefs.IsNotFound(err):
		return image{}, err
	case err != nil:
		return image{}, e.fail(ctx, err)
	case i.Os != "linux" || i.Architecture != f.architecture():
		return image{}, unsupported(fmt.Errorf("image %s is for %s/%s and the engine runs linux/%s", name, i.Os, i.Architecture, f.architecture()),
			"architecture:"+i.Architecture)
	}
	img := image{id: i.ID}
	if i.Config != nil {
		img.volumes = slices.Sorted(maps.Keys(i.Config.Volumes))
	}
	return img, nil
}

var errStalled = errors.New("pulling the image makes no progress")

// pull gets an image from its registry. It may take long, as long as it goes on.
func (e *engine) pull(ctx context.Context, name string) error {
	auth, err := registryAuth(processEnvironment().configDir(), name)
	if err != nil {
		return driver.Fail(executor.ErrAuth, executor.RanNo, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(e.timeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	res, err := e.ImagePull(ctx, name, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return e.pullFailed(ctx, name, err)
	}
	defer res.Close()
	p := pullProgress{what: "pulling " + name, layers: map[string]*jsonstream.Progress{}}
	for m, err := range res.JSONMessages(ctx) {
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return e.pullFailed(ctx, name, err)
		}
		stalled.Reset(e.timeout)
		p.add(ctx, m)
	}
	return nil
}

// pullFailed classifies an error of a pull. A registry that has no such image and one that hides it
// answer alike.
func (e *engine) pullFailed(ctx context.Context, name string, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause != nil && cause != errStalled:
		return cause
	case cause == errStalled:
		err = errStalled
	case errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return driver.Fail(executor.ErrAuth, executor.RanNo, fmt.Errorf("image %s: %w; docker login gives credentials, unless a helper keeps them: then docker pull gets the image", name, err))
	case client.IsErrConnectionFailed(err):
		return e.fail(ctx, err)
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("image %s: %w", name, err))
}

// pullProgress sums up the layers of a pull.
type pullProgress struct {
	what   string
	layers map[string]*jsonstream.Progress
}

// maxLayers bounds what a registry can make this process remember. Engines stop at 127.
const maxLayers = 256

func (p *pullProgress) add(ctx context.Context, m jsonstream.Message) {
	if m.Progress == nil || m.ID == "" || m.Status != "Downloading" || len(p.layers) >= maxLayers && p.layers[m.ID] == nil {
		return
	}
	p.layers[m.ID] = m.Progress
	sum := executor.Progress{What: p.what}
	for _, l := range p.layers {
		sum.Done += l.Current
		sum.Total += l.Total
	}
	executor.ReportProgress(ctx, sum)
}

// registryAuth returns what docker login has left for the registry of an image, in the form that
// engines take, or "" if nothing is.
func registryAuth(configDir, image string) (string, error) {
	var cfg struct {
		Auths map[string]registry.AuthConfig
	}
	if err := readJSON(filepath.Join(configDir, "config.json"), &cfg); errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	host, _, _ := strings.Cut(image, "/")
	keys := []string{host, "https://" + host}
	if host == "docker.io" {
		keys = append(keys, "https://index.docker.io/v1/", "index.docker.io")
	}
	for _, k := range keys {
		a, ok := cfg.Auths[k]
		if !ok || a.Auth == "" && a.IdentityToken == "" && a.Username == "" {
			continue // an empty entry says that a helper program keeps them; public images need none
		}
		if a.Auth != "" {
			plain, err := base64.StdEncoding.DecodeString(a.Auth)
			if err != nil {
				return "", fmt.Errorf("credentials for %s in %s: not base64", host, configDir)
			}
			a.Username, a.Password, _ = strings.Cut(string(plain), ":")
			a.Auth = ""
		}
		a.ServerAddress = k
		b, err := json.Marshal(a)
		return base64.URLEncoding.EncodeToString(b), err
	}
	return "", nil
}
