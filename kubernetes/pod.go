package kubernetes

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/remote"
)

// The limits of sessions whose configuration has none.
const (
	defaultCPUs      = 1
	defaultMemory    = 512 << 20
	defaultDisk      = 256 << 20
	defaultProcesses = 128
)

const (
	supervisorMemory = 64 << 20 // of the supervisor and the opener, which share the limit with the code
	scratch          = 64 << 20 // of the temporary directory, home included
	shared           = 16 << 20 // of /dev/shm, for multiprocessing
	names            = 64 << 10 // of the directory with the socket that knows the user's name
	minMemory        = 32 << 20 // below it an interpreter does not start
	nodeDisk         = 64 << 20 // of the node: nothing of the sandbox writes there
	pageSize         = 4 << 10  // what memory is counted in
	maxBytes         = 1 << 50  // more than any node has, and sums of it still fit
	minMilliCPUs     = 10       // what a kernel can enforce
	locked           = 64 << 10 // of memory that cannot be swapped
	lifeMargin       = 5 * 60   // seconds: the runner's own clock is first
	preludeMargin    = time.Minute
	maxSeconds       = 1<<31 - 1 // of a deadline
)

// The names in the cluster. Values of labels have no room for owners and other labels, so they
// select, and the annotation says what is true.
const (
	containerName  = "sandbox"
	podPrefix      = "execbroker-"
	labelManager   = "app.kubernetes.io/managed-by"
	manager        = "execbroker"
	labelOwner     = "execbroker.owner" // hash
	labelSession   = "execbroker.session"
	labelNetwork   = "execbroker.network" // "none", "full" or fetches, for policies of the cluster
	annotationNote = "execbroker.note"
)

// fetches is the value of labelNetwork of a pod that has a network to fetch packages.
const fetches = "packages"

// The directories of a sandbox that can be written to. They are tmpfs: a node enforces their sizes,
// and nothing of them is left on its disk.
const (
	tempDir  = "/tmp"
	shmDir   = "/dev/shm"
	namesDir = "/run/nscd" // where C libraries ask for names of users before they look into files
)

// podName is the name of the pod of a session, and the key by which a repeated create finds it.
func podName(id string) string { return podPrefix + id }

// box is a pod to be made.
type box struct {
	cfg     *Config
	id      string // Create.ID
	image   string
	labels  map[string]string // of the session
	note    string
	network executor.NetworkMode
	want    executor.Limits // none is zero
	life    time.Duration   // zero: no bound
	uid     int             // of the code
	command []string        // of the runner
	fetches bool            // packages, for others

	installs []executor.Language // what it has room for packages of
}

// limits returns what a session gets: what it asks for, or else what the template or the
// configuration says.
func (c *Config) limits(spec *executor.Spec) executor.Limits {
	l := spec.Limits
	for _, d := range []executor.Limits{
		c.Templates[spec.Template].Limits.Executor(), c.Limits.Executor(),
		{CPUs: defaultCPUs, MemoryBytes: defaultMemory, DiskBytes: defaultDisk, Processes: defaultProcesses},
	} {
		l = l.Or(d)
	}
	l.MemoryBytes, l.DiskBytes = min(l.MemoryBytes, maxBytes), min(l.DiskBytes, maxBytes)
	return l
}

// pages rounds up to whole pages of memory.
func pages(n int64) int64 { return (n + pageSize - 1) / pageSize * pageSize }

// mounts returns the sizes of the directories that code can write to, and of that of names.
func (b *box) mounts() map[string]int64 {
	return map[string]int64{executor.Workdir: pages(b.want.DiskBytes), tempDir: scratch, shmDir: shared, namesDir: names}
}

// rooms returns the directories of packages, which only root can write to, and the size of each.
func (b *box) rooms() (dirs []string, size int64) {
	for _, l := range b.installs {
		dirs = append(dirs, packages.Dirs[l])
	}
	return dirs, pages(b.cfg.sources().Bytes())
}

// limits returns what is in force once b.want has been rounded up. Files are memory, so the code
// may use as memory what it does not use as disk.
func (b *box) limits() executor.Limits {
	l := executor.Limits{CPUs: float64(b.milliCPUs()) / 1000, Processes: b.want.Processes}
	if isolationOf(b.cfg.RuntimeClass) == executor.IsolationGVisor {
		l.Processes = 0
	}
	for _, size := range b.mounts() {
		l.DiskBytes += size
	}
	dirs, size := b.rooms()
	l.MemoryBytes = pages(max(b.want.MemoryBytes, minMemory)) + l.DiskBytes + size*int64(len(dirs)) + supervisorMemory
	return l
}

func (b *box) milliCPUs() int64 {
	return max(minMilliCPUs, int64(math.Ceil(min(b.want.CPUs, 1e6)*1000)))
}

// userID returns the uid of the code of a session. The kernel counts processes for each uid on the
// whole node, so sessions do not share one. In a user namespace the pod has 65536, of its own.
func (c *Config) userID(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	if c.UserNamespaces {
		return 20000 + int(h.Sum32()%40000)
	}
	return 1<<20 + int(h.Sum32()>>1)
}

// capabilities are those of the main process and of what exec starts: root has them, code has none.
// The prelude gives a directory to the user of the code, and takes the network down; the others are
// the supervisor's.
func (b *box) capabilities() []corev1.Capability {
	all := []corev1.Capability{"CHOWN", "KILL", "SETGID", "SETUID"}
	if b.takes() == takesInterfaces {
		all = append(all, "NET_ADMIN")
	}
	return all
}

// What takes the network from a sandbox, as the prelude knows it.
const (
	takesNothing    = "full"
	takesInterfaces = "none"
	takesPolicies   = "policy"
)

func (b *box) takes() string {
	switch {
	case b.network != executor.NetworkNone:
		return takesNothing
	case b.cfg.Network == NetworkPolicy:
		return takesPolicies
	}
	return takesInterfaces
}

// resources are requests and limits. What a node has to have is a part of what is limited.
func (b *box) resources() corev1.ResourceRequirements {
	l, part := b.limits(), cmp.Or(b.cfg.Requests, 1)
	list := func(part float64) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewMilliQuantity(max(1, int64(float64(b.milliCPUs())*part)), resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity(pages(int64(float64(l.MemoryBytes)*part)), resource.BinarySI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(nodeDisk, resource.BinarySI),
		}
	}
	return corev1.ResourceRequirements{Limits: list(1), Requests: list(part)}
}

// seccomp is the filter of the container. The runner installs its own for the code beside it.
func (c *Config) seccomp() *corev1.SeccompProfile {
	if c.Seccomp != "" {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &c.Seccomp}
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

// pull translates the policy of pulls.
func (c *Config) pull() corev1.PullPolicy {
	switch c.Pull {
	case PullAlways:
		return corev1.PullAlways
	case PullNever:
		return corev1.PullNever
	}
	return corev1.PullIfNotPresent
}

// pod returns everything that makes the pod. What each line stops is told in
// docs/security/kubernetes.md.
func (b *box) pod() *corev1.Pod {
	no, yes, root, seconds := false, true, int64(0), int64(grace)
	network := string(b.network)
	if b.fetches && b.network == executor.NetworkFull {
		network = fetches
	}
	rooms, room := b.rooms()
	c := corev1.Container{
		Name: containerName, Image: b.image, ImagePullPolicy: b.cfg.pull(),
		Command:    preludeCommand(b.uid, b.takes(), b.cfg.timeout()+preludeMargin, rooms, b.command),
		WorkingDir: "/",
		Env:        []corev1.EnvVar{{Name: "LD_PRELOAD"}, {Name: "LD_AUDIT"}}, // those of the image would get into root's processes
		Resources:  b.resources(),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, RunAsGroup: &root, RunAsNonRoot: &no, Privileged: &no,
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: b.capabilities()},
			SeccompProfile: b.cfg.seccomp(),
		},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        podName(b.id),
			Labels:      map[string]string{labelManager: manager, labelOwner: remote.OwnerHash(b.labels[driver.LabelOwner]), labelSession: b.id, labelNetwork: network},
			Annotations: map[string]string{annotationNote: b.note},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &seconds,
			AutomountServiceAccountToken: &no, EnableServiceLinks: &no, Hostname: "sandbox", ShareProcessNamespace: &no,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: b.cfg.seccomp()},
			NodeSelector:    b.cfg.NodeSelector, PriorityClassName: b.cfg.PriorityClass,
		},
	}
	mounts := b.mounts()
	for _, dir := range rooms {
		mounts[dir] = room
	}
	for _, dir := range slices.Sorted(maps.Keys(mounts)) {
		name := volumeName(dir)
		size := resource.NewQuantity(mounts[dir], resource.BinarySI)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: size},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir})
	}
	if b.takes() == takesPolicies {
		c.Env = append(c.Env, corev1.EnvVar{Name: nodeVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}},
			corev1.EnvVar{Name: targetsVariable, Value: strings.Join(b.cfg.PolicyTargets, " ")})
	}
	p.Spec.Containers = []corev1.Container{c}
	if b.life > 0 {
		deadline := min(int64(b.life.Seconds())+lifeMargin+int64(b.cfg.timeout().Seconds()), maxSeconds)
		p.Spec.ActiveDeadlineSeconds = &deadline
	}
	if b.network == executor.NetworkNone {
		p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}}
	}
	if b.cfg.UserNamespaces {
		p.Spec.HostUsers = &no
	}
	if b.cfg.RuntimeClass != "" {
		p.Spec.RuntimeClassName = &b.cfg.RuntimeClass
	}
	for _, s := range b.cfg.PullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	for _, t := range b.cfg.Tolerations {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect),
		})
	}
	return p
}

// volumeName makes a name of a path.
func volumeName(dir string) string { return strings.NewReplacer("/", "-", "_", "-").Replace(dir[1:]) }
