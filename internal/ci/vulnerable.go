package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// govulncheck is installed when it is needed, as the linters are. It calls a vulnerability only
// what the code can reach.
const govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"

// found is the exit code of govulncheck for vulnerabilities.
const found = 3

// away is what govulncheck says without its database.
var away = regexp.MustCompile(`(?m)^govulncheck: (?:fetching vulnerabilities|creating client): |^(?:fetching vulnerabilities|creating client): `)

// vulnerabilities looks for known vulnerabilities in what is compiled. It needs a database that no
// registry has, so no shard runs it, but make exhaustive without shards does, and make vulnerable.
func vulnerabilities(ctx context.Context, o options) (tally, error) {
	if o.shards != 1 {
		return tally{}, nil
	}
	headline("govulncheck")
	dir, err := os.MkdirTemp("", "execbroker-govulncheck-")
	if err != nil {
		return tally{}, err
	}
	defer os.RemoveAll(dir)
	tool, err := installVulncheck(ctx, dir)
	if err != nil {
		return tally{}, err
	}
	return vulncheck(ctx, o.out, tool, ".", o.vulnerable, o.ci)
}

// installVulncheck installs govulncheck into a directory and returns the program. Run by go run, it
// would lose its exit code.
func installVulncheck(ctx context.Context, dir string) (string, error) {
	c := exec.CommandContext(ctx, "go", "install", govulncheck)
	c.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w\n%s", govulncheck, err, out)
	}
	return filepath.Join(dir, "govulncheck"), nil
}

// vulncheck runs govulncheck in a module. A database that cannot be reached is not a pass: it is
// said, and counts as skipped, or as failed in CI. Without a name the database is Go's own.
func vulncheck(ctx context.Context, w io.Writer, tool, dir, database string, ci bool) (tally, error) {
	start := time.Now()
	var args []string
	if database != "" {
		args = append(args, "-db", database)
	}
	c := exec.CommandContext(ctx, tool, append(args, "./...")...)
	c.Dir, c.WaitDelay = dir, 5*time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if ctx.Err() != nil {
		return tally{}, ctx.Err()
	}
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		fmt.Fprintf(w, "ok    %-16s%s\n", "govulncheck", took(start))
		return tally{passed: 1}, nil
	case !errors.As(err, &exit):
		return tally{}, err
	case exit.ExitCode() != found && away.Match(out.Bytes()):
		if ci {
			fmt.Fprintf(w, "FAIL  govulncheck: skipped, and nothing may be skipped in CI\n%s\n", out.Bytes())
			return tally{failed: 1}, nil
		}
		fmt.Fprintf(w, "SKIP  govulncheck: NOBODY HAS LOOKED FOR KNOWN VULNERABILITIES: its database cannot be reached; name a copy with -vulnerabilities\n%s\n", out.Bytes())
		return tally{skipped: 1}, nil
	}
	fmt.Fprintf(w, "FAIL  govulncheck\n%s\n", out.Bytes())
	return tally{failed: 1}, nil
}
