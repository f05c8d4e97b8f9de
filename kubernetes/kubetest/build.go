package kubetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The versions that the programs of a cluster are built from.
const (
	Version = "v1.34.3" // of Kubernetes

	stagingVersion = "v0.34.3" // of the modules that are developed in its repository
	etcdVersion    = "v3.6.4"
	cniVersion     = "v1.9.1"
)

// A source is a module with programs.
type source struct {
	module, version string
	more            []string // further lines of its go.mod
	set             string   // flags of the linker: what its own builds set
	programs        map[string]string
}

const kubernetesModule = "k8s.io/kubernetes"

// staging are the modules that Kubernetes takes from its own repository.
var staging = strings.Fields(`api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider
cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api cri-client csi-translation-lib
dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler
kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver`)

func sources() []source {
	kube := source{module: kubernetesModule, version: Version, programs: map[string]string{}, more: []string{"require go.etcd.io/etcd/server/v3 " + etcdVersion}}
	for _, at := range []string{"component-base/version", "client-go/pkg/version"} { // charts ask a cluster for its version
		kube.set += fmt.Sprintf(" -X k8s.io/%s.gitVersion=%s", at, Version)
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"} {
		kube.programs[name] = kubernetesModule + "/cmd/" + name
	}
	kube.programs["etcd"] = "go.etcd.io/etcd/server/v3"
	for _, name := range staging {
		kube.more = append(kube.more, fmt.Sprintf("replace k8s.io/%s => k8s.io/%s %s", name, name, stagingVersion))
	}
	const cni = "github.com/containernetworking/plugins"
	return []source{kube, {module: cni, version: cniVersion, programs: map[string]string{
		"bridge": cni + "/plugins/main/bridge", "loopback": cni + "/plugins/main/loopback", "host-local": cni + "/plugins/ipam/host-local",
	}}}
}

// pausePackage is a program of this module.
const pausePackage = "github.com/execbroker/execbroker/kubernetes/kubetest/pause"

// Build builds the programs of a cluster that are not in the cache, and returns the directory that
// has them. The first time takes a quarter of an hour of a processor and 3 GB of Go's build cache.
// Programs of other versions are kept beside them.
func Build(ctx context.Context, cache string) (dir string, err error) {
	all := sources()
	h := sha256.New()
	for _, s := range all {
		fmt.Fprintln(h, s.module, s.version, s.more, s.set)
	}
	dir = filepath.Join(cache, "programs-"+hex.EncodeToString(h.Sum(nil)[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, s := range all {
		if err := s.build(ctx, dir); err != nil {
			return "", err
		}
	}
	return dir, run(goBuild(ctx, "", filepath.Join(dir, "pause"), pausePackage, "")) // it may have changed, and takes no time
}

// build builds those that are not there.
func (s source) build(ctx context.Context, dir string) error {
	text := fmt.Sprintf("module cluster\n\ngo 1.26.0\n\nrequire %s %s\n%s\n", s.module, s.version, strings.Join(s.more, "\n"))
	work, err := os.MkdirTemp("", "execbroker-kubetest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "go.mod"), []byte(text), 0o644); err != nil {
		return err
	}
	for name, pkg := range s.programs {
		at := filepath.Join(dir, name)
		if _, err := os.Stat(at); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := run(goBuild(ctx, work, at+".new", pkg, s.set)); err != nil {
			return fmt.Errorf("build %s of %s %s: %w", name, s.module, s.version, err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			return err
		}
	}
	return nil
}

// goBuild returns a build of a static program, which leaves room for other work on the machine.
func goBuild(ctx context.Context, work, to, pkg, set string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", "go", "build", "-trimpath", "-ldflags=-s -w"+set, "-o", to, pkg)
	cmd.Dir, cmd.Env = work, append(os.Environ(), "CGO_ENABLED=0")
	if work != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS=-mod=mod", "GOWORK=off")
	}
	return cmd
}

// run runs a command and returns what it said with its error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(slices.Clip(cmd.Args), " "), err, tail(out))
	}
	return nil
}

// tail returns the end of what a program said.
func tail(out []byte) string {
	return strings.TrimSpace(string(out[max(0, len(out)-2000):]))
}
