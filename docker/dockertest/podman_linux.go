package dockertest

import (
	"context"
	"path/filepath"
)

// StartPodman starts the service that speaks Docker's API for Podman and waits until it answers.
// Its images and containers are below dir. It ends with this process, even by SIGKILL; stop ends it
// earlier and returns when it has ended.
func StartPodman(ctx context.Context, dir string) (host string, stop func() error, err error) {
	e := &Engine{Host: hostOf(dir), opts: Options{Dir: dir}}
	err = e.run(ctx, []string{
		"podman", "--root", filepath.Join(dir, "data"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp"),
		"--cgroup-manager=cgroupfs", "--events-backend=none", // of a machine without systemd
		"--storage-driver=vfs", // which leaves no mounts
		"system", "service", "--time=0", e.Host,
	})
	if err != nil {
		return "", nil, err
	}
	return e.Host, func() error {
		err := e.leash.Close()
		<-e.done
		return err
	}, nil
}
