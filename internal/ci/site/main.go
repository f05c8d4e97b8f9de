// Command site builds the documentation as a static site: the pages of docs and of the root, with
// the matrix of backends as the front, and a reference of the packages made from their comments. A
// site has several versions beside each other; building one leaves the others as they are.
//
// Pages request nothing from another host, and their policy of content forbids it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

// A build is one version of the site.
type build struct {
	root    string // of the repository
	work    string // where npm packages and what the generator reads are kept between builds
	out     string // of all versions
	base    string // path of out at its host, with a slash at both ends
	version string // "main" or such as "v0.1"
	commit  string // that links to sources of a release name
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	b := build{root: "."}
	flag.StringVar(&b.version, "version", "main", "the `version` to build from this tree: main, or such as v0.1")
	flag.StringVar(&b.out, "out", "site", "the `directory` of all versions")
	flag.StringVar(&b.base, "base", "/", "the `path` of that directory at its host")
	flag.StringVar(&b.work, "work", ".cache/site", "the `directory` for what is kept between builds")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected %q: there are only flags", flag.Args())
	}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse HEAD: %w", err)
	}
	b.commit = strings.TrimSpace(string(commit))
	if err := b.run(ctx); err != nil {
		return err
	}
	fmt.Printf("built %s; serve %s at %s\n", filepath.Join(b.out, b.version), b.out, b.base)
	return nil
}

var (
	versionName = regexp.MustCompile(`^(main|v\d+(\.\d+)*)$`)
	basePath    = regexp.MustCompile(`^/([\w.~-]+/)*$`)
)

func (b build) check() error {
	if !versionName.MatchString(b.version) {
		return fmt.Errorf("version: got %q, want main or such as v0.1", b.version)
	}
	if !basePath.MatchString(b.base) {
		return fmt.Errorf("base: got %q, want a path such as / or /execbroker/", b.base)
	}
	return nil
}
