package performance

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// figures are what benchmarks of a package have printed: seconds, bytes, bytes per second, or
// what else the unit says.
type figures map[metric][]float64

// procs is what package testing appends to the name of a benchmark: how many processors it had.
var procs = regexp.MustCompile(`-\d+$`)

// parse adds the figures of the benchmarks in the output of go test. Its form is a name, how often
// it ran, and pairs of a figure and its unit.
func (f figures) parse(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, ok := strings.CutPrefix(lines.Text(), "Benchmark")
		fields := strings.Fields(name)
		if !ok || len(fields) < 4 {
			continue
		}
		name = procs.ReplaceAllString(fields[0], "")
		for pair := range slices.Chunk(fields[2:], 2) {
			if len(pair) < 2 {
				return fmt.Errorf("%s: a figure without a unit", name)
			}
			v, err := strconv.ParseFloat(pair[0], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			m := metric(name + " " + pair[1])
			f[m] = append(f[m], v*scale(pair[1]))
		}
	}
	return lines.Err()
}

// scales are the units that stand in those of benchmarks, such as "ms" in "ms-cold", "plain-ms"
// and "ms/op".
var scales = map[string]float64{"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "MiB": 1 << 20}

// scale is what a figure of a unit is multiplied with.
func scale(unit string) float64 {
	if strings.HasSuffix(unit, "MB/s") {
		return 1e6
	}
	for part := range strings.FieldsFuncSeq(unit, func(r rune) bool { return r == '-' || r == '/' }) {
		if s, ok := scales[part]; ok {
			return s
		}
	}
	return 1
}

// of returns the median of what was measured under a name.
func (f figures) of(m metric) (float64, bool) {
	all := slices.Sorted(slices.Values(f[m]))
	if len(all) == 0 {
		return 0, false
	}
	return all[len(all)/2], true
}

// measure runs those benchmarks of a package that its claims name, count times.
func measure(ctx context.Context, pkg string, count int) (figures, error) {
	var names []string
	for _, c := range slices.Concat(claims, peers) {
		if c.pkg == pkg {
			for _, m := range []metric{c.ours, cmp.Or(c.raw, c.ours)} {
				name, _, _ := strings.Cut(string(m), " ")
				name, _, _ = strings.Cut(name, "/")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	pattern := "^Benchmark(" + strings.Join(slices.Compact(names), "|") + ")$"
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench="+pattern, "-count="+strconv.Itoa(count), "-timeout=1h", "./"+pkg)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	f := figures{}
	if perr := f.parse(strings.NewReader(string(out))); perr != nil {
		return nil, fmt.Errorf("%s: %w", pkg, perr)
	}
	// A benchmark that misses its own bound fails and has its figures nonetheless.
	if len(f) == 0 && err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	return f, nil
}
