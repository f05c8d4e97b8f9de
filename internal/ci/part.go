package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// printPart prints which part of make exhaustive belongs to the commit that is checked out, as the
// value of SHARD, and on standard error how it was found.
func printPart(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("part: want the number of parts")
	}
	parts, err := strconv.Atoi(args[0])
	if err != nil || parts < 1 {
		return fmt.Errorf("part: %q is no number of parts", args[0])
	}
	k, why, err := part(ctx, "", parts)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "exhaustive: part %d of %d, by %s\n", k, parts, why)
	_, err = fmt.Printf("%d/%d\n", k, parts)
	return err
}

// part returns the part, from 1, of the commit that is checked out in a directory. Commits that
// follow each other take turns: it is the number of commits on the first-parent line. A shallow
// clone does not know that number, so there the name of the commit decides.
func part(ctx context.Context, dir string, parts int) (k int, why string, err error) {
	shallow, err := outputIn(ctx, dir, "git", "rev-parse", "--is-shallow-repository")
	if err != nil {
		return 0, "", err
	}
	if strings.TrimSpace(shallow) == "true" {
		out, err := outputIn(ctx, dir, "git", "rev-parse", "HEAD")
		if err != nil {
			return 0, "", err
		}
		n, err := strconv.ParseUint(out[:8], 16, 32)
		return int(n%uint64(parts)) + 1, "the name " + out[:8] + " of the commit, since this clone is shallow", err
	}
	out, err := outputIn(ctx, dir, "git", "rev-list", "--first-parent", "--count", "HEAD")
	if err != nil {
		return 0, "", err
	}
	n, err := strconv.Atoi(strings.TrimSpace(out))
	return n%parts + 1, fmt.Sprintf("%d commits on the first-parent line", n), err
}
