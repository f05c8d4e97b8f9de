package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// build builds the program in a directory of its own.
func build(ctx context.Context) (program string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "execbroker-load-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	program = filepath.Join(dir, "execbroker")
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/execbroker/execbroker/cmd/execbroker")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		remove()
		return "", nil, fmt.Errorf("go build: %w", err)
	}
	return program, remove, nil
}

// config is a configuration for so many users on one machine.
func config(backend string) (string, error) {
	switch backend {
	case "docker":
		host, err := dockertest.Host()
		return fmt.Sprintf(`backends: {box: {type: docker, host: %q, image: %q, pull: never, limits: {memory: 64MiB, disk: 1MiB}, broker: {queue: {max: 500, wait: 5m}}}}`, host, dockertest.Trixie), err
	case "pyodide":
		return `backends: {local: {type: pyodide, broker: {queue: {max: 500, wait: 5m}}}}`, nil
	}
	return "", errors.New("want docker or pyodide")
}

// serving is a server in a process of its own.
type serving struct {
	server
	cmd *exec.Cmd
}

// serve starts a server over a backend and waits until it listens.
func serve(ctx context.Context, program, backend string, users int) (*serving, error) {
	text, err := config(backend)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(program), backend+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s := &serving{server: server{key: strings.ToLower(rand.Text())}}
	s.cmd = exec.CommandContext(ctx, program, "serve", "--json", "--config", file, "--listen", "127.0.0.1:0", "--max-sandboxes", strconv.Itoa(users))
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) } // it removes its sandboxes
	s.cmd.Env = append(os.Environ(), "EXECBROKER_API_KEYS="+s.key)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	var at struct{ URL string }
	if err := json.NewDecoder(out).Decode(&at); err != nil {
		return nil, errors.Join(fmt.Errorf("execbroker serve: %w", err), s.cmd.Process.Kill(), s.cmd.Wait())
	}
	s.url = at.URL
	return s, nil
}

// stop ends the server with its sandboxes.
func (s *serving) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, s.cmd.Wait())
	}
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 128+int(syscall.SIGTERM) {
		return nil
	}
	return fmt.Errorf("execbroker serve ended: %w", err)
}
