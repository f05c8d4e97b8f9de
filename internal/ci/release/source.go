package release

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// source is the state of the repository that a release is made from.
type source struct {
	commit  string
	date    time.Time // of the commit, in UTC
	changed []string  // files with changes that are not committed, as far as git lists them
}

// mostChanged is how many changed files are named.
const mostChanged = 5

func readSource(ctx context.Context, dir string) (s source, err error) {
	out, err := runIn(ctx, dir, nil, "git", "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return s, err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	t, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("git show: %q: want a commit and a time", out)
	}
	s.commit, s.date = commit, time.Unix(t, 0).UTC()
	if out, err = runIn(ctx, dir, nil, "git", "status", "--porcelain"); err != nil {
		return s, err
	}
	for line := range strings.Lines(string(out)) {
		if len(s.changed) == mostChanged {
			s.changed = append(s.changed, "and others")
			break
		}
		s.changed = append(s.changed, strings.TrimSpace(line[2:]))
	}
	return s, nil
}
