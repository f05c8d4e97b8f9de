//go:build linux

// Command pause is the first process of a process namespace: it buries what loses its parent, until
// it is told to end. The image of the cluster's sandboxes is this program alone.
//
// With the argument "leash" it is the first process of a whole cluster. It gives the namespaces a
// /proc and a /run of their own, hides the settings of the machine that a kubelet would change,
// says so in a line, and ends with its standard input: the kernel then ends everything else in
// there.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	if len(os.Args) > 1 && os.Args[1] == "leash" {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("ready")
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	for s := range signals {
		if s != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if pid, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 {
				break
			}
		}
	}
}

// settings are those that a kubelet sets for the whole machine.
var settings = map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1"}

// furnish prepares the mount namespace.
func furnish() error {
	err := errors.Join(
		syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""),
		syscall.Mount("run", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"),
	)
	for name, value := range settings {
		file := filepath.Join("/run/settings", name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(value), 0o644),
			syscall.Mount(file, filepath.Join("/proc/sys", name), "", syscall.MS_BIND, ""))
	}
	return err
}
