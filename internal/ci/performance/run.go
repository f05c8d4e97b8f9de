package performance

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// count is how often each benchmark runs. The median counts.
const count = 3

// Measure runs the benchmarks and says how many claims hold and how many do not. Without packages,
// which are directories, it runs all and renews the page. The working directory is the root of the
// module, and the machine is prepared.
func Measure(ctx context.Context, w io.Writer, packages []string) (met, missed int, err error) {
	measured := map[string]figures{}
	find := func(table []claim) (found []finding, err error) {
		for _, c := range table {
			if len(packages) > 0 && !slices.Contains(packages, c.pkg) {
				continue
			}
			if _, ok := measured[c.pkg]; !ok {
				if measured[c.pkg], err = measure(ctx, c.pkg, count); err != nil {
					return nil, err
				}
			}
			h, err := c.hold(measured[c.pkg])
			if err != nil {
				return nil, err
			}
			fmt.Fprintln(w, h.row())
			found = append(found, h)
		}
		return found, nil
	}
	found, err := find(claims)
	if err != nil {
		return 0, 0, err
	}
	beside, err := find(peers)
	if err != nil {
		return 0, 0, err
	}
	for _, h := range found {
		if h.met() {
			met++
		} else {
			missed++
		}
	}
	if len(packages) > 0 {
		return met, missed, nil
	}
	return met, missed, os.WriteFile(Page, []byte(page(time.Now(), machine(ctx), found, beside)), 0o644)
}

// Rewrite renews the lines of the page without measuring anything, as after a change of a claim on
// a machine that is not quiet. Lines whose claim has changed are marked with the commit that is
// checked out.
func Rewrite(ctx context.Context) error {
	text, err := os.ReadFile(Page)
	if err != nil {
		return err
	}
	renewed, err := rewrite(string(text), commit(ctx), claims, peers)
	if err != nil {
		return err
	}
	return os.WriteFile(Page, []byte(renewed), 0o644)
}
