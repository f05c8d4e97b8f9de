package flytest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of Machine configurations.
const (
	maxFiles = 100
	maxStop  = 300 * time.Second
)

// The keys of a configuration that the emulator acts on, that have no effect in it, and that it
// refuses.
var (
	acted   = []string{"image", "env", "init", "guest", "size", "files", "auto_destroy", "restart", "stop_config", "services", "dns", "metadata"}
	inert   = []string{"checks", "metrics", "statics", "disable_machine_autostart"}
	refused = []string{"mounts", "processes", "containers", "volumes", "standbys", "schedule", "spot", "cache_drive", "rootfs"}
)

// parseConfig reads a configuration. It returns the keys that have no effect.
func parseConfig(raw map[string]json.RawMessage) (c machineConfig, without []string, err error) {
	if len(raw) == 0 {
		return c, nil, ours("config is missing")
	}
	for _, k := range slices.Sorted(maps.Keys(raw)) {
		v := string(raw[k])
		empty := v == "null" || v == "{}" || v == "[]" || v == `""` || v == "false"
		switch {
		case slices.Contains(acted, k), empty && slices.Contains(refused, k):
		case slices.Contains(inert, k):
			if !empty {
				without = append(without, k)
			}
		case k == "rootfs":
			var r struct {
				Persist string `json:"persist"`
				SizeGB  uint64 `json:"size_gb"`
			}
			if json.Unmarshal(raw[k], &r) != nil || r.Persist != "" && r.Persist != "never" {
				return c, nil, ours("config.rootfs.persist: a root file system starts anew at every start here; only never is supported")
			}
			if r.SizeGB != 0 {
				without = append(without, "rootfs.size_gb")
			}
		case slices.Contains(refused, k):
			return c, nil, ours("config.%s is not supported by the emulator", k)
		default:
			return c, nil, ours("config.%s: Fly's documentation has no such field", k)
		}
	}
	b, merr := json.Marshal(raw)
	if merr != nil {
		return c, nil, ours("config: %v", merr)
	}
	if uerr := json.Unmarshal(b, &c); uerr != nil {
		return c, nil, ours("config: %v", uerr)
	}
	if len(c.Services) > 0 {
		without = append(without, "services' ports, handlers, autostart and autostop")
	}
	if cerr := c.check(); cerr != nil {
		return c, nil, cerr
	}
	return c, without, nil
}

// check refuses what cannot be done, and fills in Fly's defaults.
func (c *machineConfig) check() error {
	if c.Image == "" {
		return fail(400, "invalid_argument: config.image is required")
	}
	if err := c.checkGuest(); err != nil {
		return err
	}
	switch c.Restart.Policy {
	case "":
		c.Restart.Policy = "on-failure"
	case "no", "always", "on-failure":
	default:
		return ours("config.restart.policy: want no, on-failure or always, not %q", c.Restart.Policy)
	}
	if c.Restart.MaxRetries < 0 {
		return ours("config.restart.max_retries: want zero or more, not %d", c.Restart.MaxRetries)
	}
	if c.Restart.Policy == "on-failure" && c.Restart.MaxRetries == 0 {
		c.Restart.MaxRetries = 10
	}
	if _, err := parseSignal(c.StopConfig.Signal); err != nil {
		return ours("config.stop_config.signal: %v", err)
	}
	if len(c.Init.KernelArgs) > 0 {
		return ours("config.init.kernel_args: a container has no kernel of its own")
	}
	if c.Init.SwapSizeMB < 0 || c.Init.SwapSizeMB > maxMemoryMB {
		return ours("config.init.swap_size_mb: want 0 to %d, not %d", maxMemoryMB, c.Init.SwapSizeMB)
	}
	if len(c.Files) > maxFiles {
		return ours("config.files: %d files are more than %d", len(c.Files), maxFiles)
	}
	for i, f := range c.Files {
		if err := f.check(); err != nil {
			return ours("config.files[%d].%v", i, err)
		}
	}
	for i, v := range c.Services {
		if v.InternalPort < 1 || v.InternalPort > 65535 {
			return ours("config.services[%d].internal_port: %d is not a port", i, v.InternalPort)
		}
		if v.Protocol != "" && v.Protocol != "tcp" {
			return ours("config.services[%d].protocol: only tcp is supported", i)
		}
	}
	for k, v := range c.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return ours("config.env: %q is not a variable", k)
		}
	}
	return nil
}

const maxMemoryMB = 128 << 10

var cpuCounts = []int{1, 2, 4, 8, 16}

var sizeName = regexp.MustCompile(`^(shared-cpu|performance)-([0-9]{1,2})x$`)

// checkGuest accepts the sizes that Fly has.
func (c *machineConfig) checkGuest() error {
	g := &c.Guest
	if c.Size != "" && g.CPUs == 0 {
		m := sizeName.FindStringSubmatch(c.Size)
		if m == nil {
			return ours("config.size: want shared-cpu-<n>x or performance-<n>x, not %q", c.Size)
		}
		g.CPUKind, _, _ = strings.Cut(m[1], "-")
		g.CPUs, _ = strconv.Atoi(m[2]) // digits
	}
	g.CPUKind = cmp.Or(g.CPUKind, "shared")
	g.CPUs = cmp.Or(g.CPUs, 1)
	least, most := int64(256), int64(2048)
	switch g.CPUKind {
	case "shared":
	case "performance":
		least, most = 2048, 8192
	default:
		return fail(400, "invalid_argument: invalid config.guest.cpu_kind: %q, valid kinds are [shared performance]", g.CPUKind)
	}
	if !slices.Contains(cpuCounts, g.CPUs) {
		return fail(400, "invalid_argument: invalid config.guest.cpus: %d, valid numbers are %v", g.CPUs, cpuCounts)
	}
	least, most = least*int64(g.CPUs), most*int64(g.CPUs)
	g.MemoryMB = cmp.Or(g.MemoryMB, least)
	if g.MemoryMB < least || g.MemoryMB > most || g.MemoryMB%256 != 0 {
		return fail(400, "invalid_argument: invalid config.guest.memory_mb: %d, want %d to %d in steps of 256", g.MemoryMB, least, most)
	}
	switch {
	case g.GPUs != 0 || g.GPUKind != "":
		return ours("config.guest.gpus is not supported by the emulator")
	case g.HostDedicationID != "":
		return ours("config.guest.host_dedication_id is not supported by the emulator")
	case len(g.KernelArgs) > 0:
		return ours("config.guest.kernel_args: a container has no kernel of its own")
	case g.MaxMemoryMB != 0 && g.MaxMemoryMB != g.MemoryMB:
		return ours("config.guest.max_memory_mb is not supported by the emulator")
	case g.PersistRootfs != "" && g.PersistRootfs != "never" && g.PersistRootfs != "none":
		return ours("config.guest.persist_rootfs: a root file system starts anew at every start here")
	}
	return nil
}

// check refuses files that cannot be placed.
func (f *file) check() error {
	if !path.IsAbs(f.GuestPath) || path.Clean(f.GuestPath) != f.GuestPath || f.GuestPath == "/" || strings.ContainsRune(f.GuestPath, 0) {
		return fmt.Errorf("guest_path: want the absolute path of a file, not %q", f.GuestPath)
	}
	if f.SecretName != nil || f.ImageConfig != nil {
		return fmt.Errorf("secret_name and image_config: not supported by the emulator; use raw_value")
	}
	if f.RawValue == nil {
		return fmt.Errorf("raw_value: is missing")
	}
	if _, err := base64.StdEncoding.DecodeString(*f.RawValue); err != nil {
		return fmt.Errorf("raw_value: %w", err)
	}
	if f.Mode < 0 || f.Mode > 0o7777 {
		return fmt.Errorf("mode: want at most 4095 (0o7777), not %d", f.Mode)
	}
	return nil
}

// signals are those that Fly's documentation lists, by name.
var signals = map[string]int{
	"SIGABRT": 6, "SIGALRM": 14, "SIGFPE": 8, "SIGHUP": 1, "SIGILL": 4, "SIGINT": 2, "SIGKILL": 9, "SIGPIPE": 13,
	"SIGQUIT": 3, "SIGSEGV": 11, "SIGTERM": 15, "SIGTRAP": 5, "SIGUSR1": 10, "SIGUSR2": 12,
}

// parseSignal returns the number of a signal. Empty is 0: none.
func parseSignal(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	if n, ok := signals[name]; ok {
		return n, nil
	}
	return 0, fmt.Errorf("%q is not a signal", name)
}
