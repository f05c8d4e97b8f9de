package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// generate runs go generate in a copy of the repository and compares: what is committed is what its
// sources make.
func generate(ctx context.Context, o options) (tally, error) {
	const name = "generate"
	start := time.Now()
	if _, err := exec.LookPath("protoc"); err != nil {
		if o.ci {
			return tally{}, err
		}
		fmt.Fprintf(o.out, "skip  %-16s%v; install protobuf-compiler and libprotobuf-dev\n", name, err)
		return tally{skipped: 1}, nil
	}
	differs, err := regenerate(ctx, ".")
	if err != nil {
		return tally{}, err
	}
	if len(differs) > 0 {
		fmt.Fprintf(o.out, "FAIL  %-16sgo generate ./... makes others than committed:\n%s\n", name, strings.Join(differs, "\n"))
		return tally{failed: 1}, nil
	}
	fmt.Fprintf(o.out, "ok    %-16s%s\n", name, took(start))
	return tally{passed: 1}, nil
}

// regenerate returns the files of the repository in dir that go generate makes differently, or that
// only it makes.
func regenerate(ctx context.Context, dir string) (differs []string, err error) {
	names, err := tracked(ctx, dir)
	if err != nil {
		return nil, err
	}
	there, err := os.MkdirTemp("", "execbroker-generate-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(there)) }()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		to := filepath.Join(there, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "generate", "./...")
	cmd.Dir = there
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go generate: %w\n%s", err, out)
	}
	err = filepath.WalkDir(there, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(there, path)
		if err != nil {
			return err
		}
		made, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		committed, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(withoutVersions(made), withoutVersions(committed)) {
			differs = append(differs, filepath.ToSlash(name))
		}
		return nil
	})
	return differs, err
}

// tracked returns the files that belong to the repository in dir, committed or about to be.
func tracked(ctx context.Context, dir string) ([]string, error) {
	out, err := output(ctx, "git", "-C", dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	names := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	return slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Lstat(filepath.Join(dir, name))
		return err != nil || !info.Mode().IsRegular() // one that is deleted and not yet committed is listed
	}), nil
}

// protocVersion is the line in which generated code names the protoc that it was made with, which
// is that of each machine.
var protocVersion = regexp.MustCompile(`(?m)^//\s+protoc\s+\(?v[^\n]*\n`)

func withoutVersions(code []byte) []byte { return protocVersion.ReplaceAll(code, nil) }
