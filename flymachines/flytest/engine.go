package flytest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// guestCaps are what root of a guest can do that stays within its namespaces, or nearly: it is no
// boundary, see the package comment. What would change the machine of the engine for everybody (its
// clock, its modules, its power) is not among them, and neither is SYS_RESOURCE, which an engine
// that runs in a sandbox itself cannot give.
var guestCaps = []string{"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_NICE", "IPC_LOCK", "IPC_OWNER", "LINUX_IMMUTABLE"}

// guestPids keeps a fork bomb in a guest from taking the machine of the engine along.
const guestPids = 4096

// imageInfo is what the engine knows of an image.
type imageInfo struct {
	id         string
	digest     string
	size       int64
	entrypoint []string
	cmd        []string
	labels     map[string]string
}

// errNoImage says that an image is not there. What Fly says is not publicly known in all detail.
var errNoImage = errors.New("the image is not there")

// findImage returns an image of the engine. It is pulled if pull says so and it is missing.
func (s *Server) findImage(ctx context.Context, ref string, pull bool) (*imageInfo, error) {
	if to, ok := s.cfg.Images[ref]; ok {
		ref = to
	}
	if _, digest, found := strings.Cut(ref, "@"); found {
		s.mu.Lock()
		if id, ok := s.digests[digest]; ok { // clients put what image_ref told them behind the name
			ref = id
		}
		s.mu.Unlock()
	}
	i, err := s.engine.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) && pull {
		if err = s.pull(ctx, ref); err == nil {
			i, err = s.engine.ImageInspect(ctx, ref)
		}
	}
	switch {
	case errdefs.IsNotFound(err), errdefs.IsInvalidArgument(err):
		return nil, fmt.Errorf("%w: %s", errNoImage, ref)
	case err != nil:
		return nil, fmt.Errorf("engine: %w", err)
	}
	// An image that was made on this machine has no digest at a registry. Its ID takes the place of
	// one.
	info := &imageInfo{id: i.ID, digest: i.ID, size: i.Size}
	for _, known := range i.RepoDigests {
		if _, digest, found := strings.Cut(known, "@"); found {
			info.digest = digest
			break
		}
	}
	s.mu.Lock()
	s.digests[info.digest] = i.ID
	s.mu.Unlock()
	if i.Config != nil {
		info.entrypoint, info.cmd, info.labels = i.Config.Entrypoint, i.Config.Cmd, i.Config.Labels
	}
	return info, nil
}

func (s *Server) pull(ctx context.Context, ref string) error {
	r, err := s.engine.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Wait(ctx)
}

// reference splits the name of an image of which info may be known.
func reference(name string, info *imageInfo) imageRef {
	r := imageRef{Registry: "docker-hub-mirror.fly.io", Labels: map[string]string{}}
	name, r.Digest, _ = strings.Cut(name, "@")
	pinned := r.Digest != ""
	if info != nil {
		r.Digest = info.digest
		if info.labels != nil {
			r.Labels = info.labels
		}
	}
	if first, rest, found := strings.Cut(name, "/"); found && strings.ContainsAny(first, ".:") {
		r.Registry, name = first, rest
	}
	if i := strings.LastIndexByte(name, ':'); i > 0 {
		name, r.Tag = name[:i], name[i+1:]
	}
	if r.Tag == "" && !pinned {
		r.Tag = "latest"
	}
	r.Repository = name
	return r
}

// command is the main process of a Machine. What Fly's init does with the image's own is what
// Docker does, but that a new entry point leaves the image's arguments in force.
func (c *machineConfig) command(i *imageInfo) (entrypoint, cmd []string) {
	if len(c.Init.Exec) > 0 {
		return c.Init.Exec, nil
	}
	entrypoint, cmd = i.entrypoint, i.cmd
	if len(c.Init.Entrypoint) > 0 {
		entrypoint = c.Init.Entrypoint
	}
	if len(c.Init.Cmd) > 0 {
		cmd = c.Init.Cmd
	}
	return entrypoint, cmd
}

// options describes the container of a Machine. The caller holds Server.mu.
func (m *machine) options(i *imageInfo, cpus int) (client.ContainerCreateOptions, error) {
	c := &m.cfg
	yes, pids := true, int64(guestPids)
	memory := c.Guest.MemoryMB << 20
	entrypoint, cmd := c.command(i)
	if len(entrypoint)+len(cmd) == 0 {
		return client.ContainerCreateOptions{}, errors.New("neither the configuration nor the image says what to run")
	}
	var dns []netip.Addr
	for _, n := range c.DNS.Nameservers {
		a, err := netip.ParseAddr(n)
		if err != nil {
			return client.ContainerCreateOptions{}, fmt.Errorf("config.dns.nameservers: %w", err)
		}
		dns = append(dns, a)
	}
	hostname := m.id
	if c.DNS.Hostname != "" {
		hostname = c.DNS.Hostname
	}
	o := client.ContainerCreateOptions{
		Name: containerName(m.id, m.instance, m.restarts),
		Config: &container.Config{
			Image: i.id, Hostname: hostname, Env: m.env(), Entrypoint: entrypoint, Cmd: cmd, Tty: c.Init.TTY,
			Labels:      m.s.engine.Labels(m.app.Name + "/" + m.id),
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: &container.HostConfig{
			Init:        &yes, // the configured program is a child of init with Fly, too: signals have their default effect on it
			CapAdd:      guestCaps,
			SecurityOpt: []string{"apparmor=unconfined"}, // the engine's profile forbids to mount, whatever the rights
			ExtraHosts:  []string{"fly-local-6pn:::"},
			DNS:         dns, DNSSearch: c.DNS.Searches,
			LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
			Resources: container.Resources{
				NanoCPUs: int64(min(c.Guest.CPUs, cpus)) * 1e9, PidsLimit: &pids,
				Memory: memory, MemorySwap: memory + c.Init.SwapSizeMB<<20,
			},
			PortBindings: network.PortMap{},
		},
	}
	o.Config.ExposedPorts = network.PortSet{}
	for _, p := range m.ports() {
		port, _ := network.PortFrom(uint16(p), network.TCP) // checked
		o.Config.ExposedPorts[port] = struct{}{}
		o.HostConfig.PortBindings[port] = []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1")}}
	}
	return o, nil
}

// ports are those that are published.
func (m *machine) ports() []int {
	ports := slices.Clone(m.s.cfg.Publish)
	for _, v := range m.cfg.Services {
		ports = append(ports, v.InternalPort)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func containerName(id, instance string, restart int) string {
	return "flytest-" + id + "-" + strings.ToLower(instance) + "-" + strconv.Itoa(restart)
}

// archive is what of a configuration goes into the file system of a guest: files[], and /.fly,
// where every guest of Fly has a socket that speaks for its Machine.
func (c *machineConfig) archive() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{"/": true}
	add := func(name string, mode int64, content []byte) error {
		var dirs []string
		for d := path.Dir(name); !made[d]; d = path.Dir(d) {
			made[d] = true
			dirs = append(dirs, d)
		}
		slices.Reverse(dirs)
		for _, d := range dirs {
			if d == "/.fly" { // other directories are made by the engine, if they are not there
				if err := w.WriteHeader(&tar.Header{Name: d[1:] + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
					return err
				}
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: name[1:], Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if err := add("/.fly/api", 0o666, []byte("flytest: with Fly this is the socket of the Machine's own API\n")); err != nil {
		return nil, err
	}
	for _, f := range c.Files {
		content, err := base64.StdEncoding.DecodeString(*f.RawValue)
		if err != nil {
			return nil, err
		}
		mode := f.Mode
		mode = cmp.Or(mode, 0o644)
		if err := add(f.GuestPath, mode, content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// tail returns the end of what a container has printed.
func (s *Server) tail(ctx context.Context, id string, tty bool) string {
	r, err := s.engine.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return ""
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 16<<10))
	if err != nil {
		return ""
	}
	if !tty {
		b = plain(b)
	}
	return string(b[max(0, len(b)-2000):])
}
