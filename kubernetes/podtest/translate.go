package podtest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
)

// podPids is how many processes a pod may have, as kubelets bound it.
const podPids = 400

const shmDir = "/dev/shm"

// options describes the container of a pod.
func (p *pod) options() (client.ContainerCreateOptions, error) {
	spec := &p.object.Spec
	c := &spec.Containers[0]
	memory, cpu, pids := c.Resources.Limits.Memory().Value(), c.Resources.Limits.Cpu().MilliValue(), int64(podPids)
	if memory <= 0 || cpu <= 0 {
		return client.ContainerCreateOptions{}, errNoMemory
	}
	host := &container.HostConfig{
		NetworkMode: "bridge", CapDrop: []string{"ALL"}, ReadonlyRootfs: *c.SecurityContext.ReadOnlyRootFilesystem, Tmpfs: map[string]string{},
		LogConfig: container.LogConfig{Type: "none"}, // what is said to nobody is lost
		Resources: container.Resources{Memory: memory, MemorySwap: memory, NanoCPUs: cpu * 1e6, PidsLimit: &pids},
	}
	if p.s.cutOff(p.object.Labels) {
		host.NetworkMode = "none"
	}
	for _, a := range c.SecurityContext.Capabilities.Add {
		host.CapAdd = append(host.CapAdd, string(a))
	}
	if !*c.SecurityContext.AllowPrivilegeEscalation {
		host.SecurityOpt = []string{"no-new-privileges"}
	}
	if spec.DNSPolicy == corev1.DNSNone && spec.DNSConfig != nil {
		for _, at := range spec.DNSConfig.Nameservers {
			a, err := netip.ParseAddr(at)
			if err != nil {
				return client.ContainerCreateOptions{}, fmt.Errorf("dnsConfig.nameservers: %w", err)
			}
			host.DNS = append(host.DNS, a)
		}
	}
	sizes := map[string]int64{}
	for _, v := range spec.Volumes {
		sizes[v.Name] = v.EmptyDir.SizeLimit.Value()
	}
	for _, m := range c.VolumeMounts {
		if m.MountPath == shmDir {
			host.ShmSize = sizes[m.Name]
		} else {
			host.Tmpfs[m.MountPath] = fmt.Sprintf("rw,exec,nosuid,nodev,mode=777,size=%d", sizes[m.Name])
		}
	}
	made := &container.Config{
		Image: c.Image, User: "0:0", Hostname: spec.Hostname, Entrypoint: c.Command, Cmd: c.Args, WorkingDir: c.WorkingDir,
		OpenStdin: c.Stdin, Labels: map[string]string{labelServer: p.s.label}, Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	made.Env = []string{"KUBERNETES_SERVICE_HOST=" + p.s.node, "KUBERNETES_SERVICE_PORT=443"}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "status.hostIP" {
			e.Value = p.s.node
		}
		made.Env = append(made.Env, e.Name+"="+e.Value)
	}
	return client.ContainerCreateOptions{Name: "podtest-" + strings.ToLower(p.s.label[:8]) + "-" + p.object.Name, Config: made, HostConfig: host}, nil
}
