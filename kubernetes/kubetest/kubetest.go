// Package kubetest brings up a Kubernetes cluster of one node for tests: etcd, the API server, the
// controllers, the scheduler, the kubelet, containerd and a network of pods, each the real program.
//
// The cluster is in network, mount and process namespaces of its own. Its network leads to this
// machine and nowhere else, and it ends with the process that has started it, even by SIGKILL. Its
// programs, of which kubectl is one, are built once, by [Build], and kept in the cache directory
// with its images. It has no controller of network policies, no name server and no kube-proxy. Of
// services only that of the API server answers, so that programs in pods find it.
//
// It needs Linux, root, and of the machine containerd, runc, ip (iproute2), nsenter and mount
// (util-linux).
package kubetest

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// ErrMissing says what a machine lacks that a cluster needs. Tests skip then.
var ErrMissing = errors.New("kubetest: not possible here")

// Image is one that the nodes of a cluster have: of the Docker engine of tests, or of a program.
type Image struct {
	Name string // as pods name it
	ID   string // of its contents
	// Save writes it in the form of docker save.
	Save func(file string) error
}

// Options says how a cluster runs.
type Options struct {
	// Cache is where programs and images are kept: Dir. Two clusters with the same Cache do not run
	// at the same time: the second waits.
	Cache string
	// Images are those that the node has. It reaches no registry.
	Images []Image
	// Programs is what Build returned.
	Programs string
}

// Dir is the cache directory of tests.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "execbroker", "kubernetes"), err
}

// The programs of a cluster, for Kill and Restart.
const (
	APIServer = "kube-apiserver"
	Kubelet   = "kubelet"
)

const (
	startTimeout = 2 * time.Minute // of one program
	pollEvery    = 50 * time.Millisecond
)
