package dockertest

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// runtimes are programs that stand for the runtimes beside the engine's own, wherever Debian has
// put those. An engine has them whether or not they are installed: it looks for them when a
// container is started.
var runtimes = map[string]string{
	// The platform ptrace needs nothing of the processor or of a machine around this one. gVisor's
	// older versions take a network namespace that has rmem_default for that of the host, and
	// kernels from 6.7 on have it in each: so it gets to see none of these settings.
	GVisor: `#!/bin/sh
exec unshare -m sh -c 'mount -t tmpfs -o ro none /proc/sys/net && exec runsc --platform=ptrace "$@"' sh "$@"
`,
	// Control groups of version 1 beside a hierarchy of version 2 that has a controller are too
	// much for it: so it gets to see the former only.
	Crun: `#!/bin/sh
exec unshare -m sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec crun "$@"' sh "$@"
`,
}

// writeRuntimes writes the configuration of an engine that has them, and returns its name.
func writeRuntimes(dir string) (string, error) {
	type path struct {
		Path string `json:"path"`
	}
	paths := map[string]path{}
	for name, text := range runtimes {
		p := filepath.Join(dir, "runtime-"+name)
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			return "", err
		}
		paths[name] = path{p}
	}
	text, err := json.Marshal(map[string]any{"runtimes": paths})
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "daemon.json")
	return config, os.WriteFile(config, text, 0o600)
}
