package all_test

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// TestCarried lets a hundred conversations of the corpus go on on the next backend, four times.
// Each name must have the same value there, or be listed as one that was not carried.
func TestCarried(t *testing.T) {
	t.Parallel()
	some := talks(t, 100)
	text := carriedHead + carried(t, byType(t, "pyodide", "docker", "flymachines", "e2b", "pyodide"), some).markdown()
	libraries := carried(t, byType(t, "docker", "flymachines", "e2b", "docker"), scientific)
	text += "\n## NumPy, pandas and Pillow\n\nThe tests' Pyodide has no packages, so it is not among these.\n\n" + libraries.markdown()
	for _, h := range libraries.hops {
		if len(h.omitted) > 0 {
			t.Errorf("%s to %s: not carried: %v", h.from, h.to, h.omitted)
		}
	}
	t.Log(text)
	if *update {
		if err := os.WriteFile(carriedFile, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCarriedOfSample is TestCarried with three conversations.
func TestCarriedOfSample(t *testing.T) {
	t.Parallel()
	carried(t, byType(t, "pyodide", "docker", "flymachines", "e2b", "pyodide"), talks(t, 3))
}

const (
	carriedFile = "../../docs/reports/checkpoints.md"
	carriedHead = `# Conversations that move between backends

A hundred conversations in Python of this repository's corpus begin on Pyodide and move from backend
to backend by [checkpoints](../guides/checkpoints.md), made by ` + "`make parity`" + `. After each move, every
name is compared with what it was before the first one, with what it shares and with cycles.

`
)

// scientific are conversations with values of libraries that need native code.
var scientific = []parity.Program{
	{Name: "numpy", Cells: []parity.Cell{{Code: "import numpy as np\na = np.arange(12.0).reshape(3, 4); v = a[1:]; m = np.ma.masked_less(a, 3); r = np.rec.array([(1, 'x')], dtype=[('n', int), ('s', 'U1')])"}, {Code: "both = [a, a]; kind = a.dtype; one = np.float32(1.5)"}}},
	{Name: "pandas", Cells: []parity.Cell{{Code: "import pandas as pd\nd = pd.DataFrame({'a': [1, 2], 'b': ['x', None]}, index=pd.date_range('2026-01-01', periods=2)); s = d['a'] * 2"}, {Code: "g = d.describe(); c = pd.Categorical(['x', 'y', 'x']); t = pd.Timestamp('2026-01-01', tz='UTC')"}}},
	{Name: "pillow", Cells: []parity.Cell{{Code: "from PIL import Image\ni = Image.new('RGB', (8, 8), 'red'); i.putpixel((1, 1), (0, 0, 255)); small = i.resize((2, 2))"}}},
}

// talks returns n programs in Python that read no input.
func talks(t *testing.T, n int) []parity.Program {
	t.Helper()
	all := slices.DeleteFunc(programs(t, 1), func(p parity.Program) bool {
		return p.Language != executor.Python || slices.ContainsFunc(p.Cells, func(c parity.Cell) bool { return c.Stdin != "" })
	})
	// Those of several cells first: the others are scripts.
	slices.SortStableFunc(all, func(a, b parity.Program) int { return cmp.Compare(min(len(b.Cells), 2), min(len(a.Cells), 2)) })
	if len(all) < n {
		t.Fatalf("%d conversations", len(all))
	}
	if n >= 100 {
		return all[:n]
	}
	some := make([]parity.Program, 0, n)
	for i := range n {
		some = append(some, all[i*100/n])
	}
	return some
}

// byType returns backends by their types.
func byType(t *testing.T, types ...string) (some []executor.Executor) {
	t.Helper()
	open := openAll(t)
	for _, typ := range types {
		i := slices.IndexFunc(open, func(x executor.Executor) bool { return x.Info().Type == typ })
		if i < 0 {
			t.Fatalf("no backend of type %s", typ)
		}
		some = append(some, open[i])
	}
	return some
}

// A hop is what conversations kept between two backends.
type hop struct {
	from, to      string
	conversations int
	names         int
	omitted       map[string]int // by kind and reason
}

type journey struct {
	mu   sync.Mutex
	hops []*hop
}

// carried moves conversations along backends. A value that is not the same is an error.
func carried(t *testing.T, along []executor.Executor, some []parity.Program) *journey {
	j := &journey{}
	for i := range along[1:] {
		j.hops = append(j.hops, &hop{from: along[i].Info().Type, to: along[i+1].Info().Type, omitted: map[string]int{}})
	}
	work := make(chan parity.Program)
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for p := range work {
				if err := j.carry(t, along, p); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}
		})
	}
	for _, p := range some {
		work <- p
	}
	close(work)
	workers.Wait()
	return j
}

// carry moves one conversation. Where it began lives on, to be compared with.
func (j *journey) carry(t *testing.T, along []executor.Executor, p parity.Program) (err error) {
	spec := executor.Spec{Languages: []executor.Language{executor.Python}}
	origin, err := along[0].Create(t.Context(), spec)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, origin.Close()) }()
	for name, text := range p.Files {
		if err := origin.Files().Write(t.Context(), name, strings.NewReader(text), 0); err != nil {
			return err
		}
	}
	for _, c := range p.Cells { // as the corpus has them: some end with an error
		if _, err := origin.Run(t.Context(), executor.Request{Language: executor.Python, Code: c.Code}, nil); err != nil {
			return err
		}
	}
	at := origin
	for i, x := range along[1:] {
		var archive bytes.Buffer
		if _, err := checkpoint.Make(t.Context(), at, &archive, checkpoint.Options{}); err != nil {
			return fmt.Errorf("leaving %s: %w", along[i].Info().Type, err)
		}
		if at != origin {
			if err := at.Close(); err != nil {
				return err
			}
		}
		if at, err = x.Create(t.Context(), spec); err != nil {
			return err
		}
		got, err := checkpoint.Restore(t.Context(), at, &archive, checkpoint.Options{Known: true})
		if err != nil {
			return cmp.Or(at.Close(), fmt.Errorf("arriving on %s: %w", x.Info().Type, err))
		}
		names := append([]string{}, got.Names()...)
		want, err := described(t, origin, names)
		if err != nil {
			return err
		}
		is, err := described(t, at, names)
		if err != nil {
			return err
		}
		for n, name := range names {
			if is[n] != want[n] {
				t.Errorf("%s: %s on %s: got %s, want %s", p.Name, name, x.Info().Type, is[n], want[n])
			}
		}
		j.count(i, len(names), got.Omitted)
	}
	return at.Close()
}

// described says what each of names is in a session. What names share is told alike where it is the
// same names.
func described(t *testing.T, s executor.Session, names []string) ([]string, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	code := fmt.Sprintf(`(lambda b: b.exec(b.compile(%s, "<describe>", "exec", 0, True), {"__name__": "describe", "__builtins__": b.dict(b.vars(b)), `+
		`"namespace": b.globals(), "names": b.__import__("json").loads(%s)}))(__import__("builtins"))`, strconv.QuoteToASCII(describeSource), strconv.QuoteToASCII(string(list)))
	r, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: code, Keep: 4 << 20}, nil)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("describing on %s: %w", s.Info().Handle.Backend, err)
	}
	lines := strings.Split(strings.TrimSuffix(r.Stdout.String(), "\n"), "\n")
	if len(names) > 0 && len(lines) != len(names) {
		return nil, fmt.Errorf("describing on %s: %d lines for %d names", s.Info().Handle.Backend, len(lines), len(names))
	}
	return lines, nil
}

//go:embed testdata/describe.py
var describeSource string

var address = regexp.MustCompile(` at 0x[0-9a-f]+`)

// count adds a conversation to a hop.
func (j *journey) count(i, names int, omitted []checkpoint.Omission) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.hops[i]
	h.conversations++
	h.names += names
	for _, o := range omitted {
		h.omitted[address.ReplaceAllString(o.Kind+": "+o.Reason, "")]++
	}
}

// markdown says what each hop kept.
func (j *journey) markdown() string {
	var b strings.Builder
	b.WriteString("| From | To | Conversations | Names with the same value | Names that were not carried |\n|---|---|---|---|---|\n")
	classes := map[string]bool{}
	for _, h := range j.hops {
		n := 0
		for class, k := range h.omitted {
			classes[class] = true
			n += k
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", h.from, h.to, h.conversations, h.names, n)
	}
	if len(classes) == 0 {
		return b.String()
	}
	b.WriteString("\n| Not carried |")
	for _, h := range j.hops {
		fmt.Fprintf(&b, " to %s |", h.to)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(j.hops)) + "\n")
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		fmt.Fprintf(&b, "| %s |", strings.ReplaceAll(class, "|", `\|`))
		for _, h := range j.hops {
			fmt.Fprintf(&b, " %d |", h.omitted[class])
		}
		b.WriteString("\n")
	}
	return b.String()
}
