package all_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/executor"
)

// A generator writes random programs of one kind.
type generator struct {
	*rand.Rand
	strings.Builder
}

// family is a kind of generated programs.
type family struct {
	language executor.Language
	name     string
	write    func(g *generator)
}

// generate returns n programs, the same number of each family. The same seed returns the same
// programs.
func generate(seed uint64, n int) (programs []parity.Program) {
	families := slices.Concat(pythonFamilies, javascriptFamilies)
	for i := range n {
		f := families[i%len(families)]
		g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		f.write(g)
		p := parity.Program{Name: fmt.Sprintf("generated/%s/%s/%03d", f.language, f.name, i), Language: f.language}
		for part := range strings.SplitSeq(g.String(), cellMark) {
			c := parity.Cell{Code: part}
			if rest, ok := strings.CutPrefix(part, inputMark); ok {
				input, code, _ := strings.Cut(rest, "\x00")
				c = parity.Cell{Code: code, Stdin: input}
			}
			p.Cells = append(p.Cells, c)
		}
		programs = append(programs, p)
	}
	return programs
}

// The marks of a new cell and of the input of a cell. The input is before the code and ends with a
// NUL.
const (
	cellMark  = "\x00cell\x00"
	inputMark = "\x00input\x00"
)

// line writes a line of code.
func (g *generator) line(format string, args ...any) { fmt.Fprintf(g, format+"\n", args...) }

// pick returns a random one of several values.
func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// fill replaces $1, $2, ... by texts.
func fill(template string, texts ...string) string {
	var pairs []string
	for i, t := range texts {
		pairs = append(pairs, fmt.Sprintf("$%d", i+1), t)
	}
	return strings.NewReplacer(pairs...).Replace(template)
}

// several returns between least and most results of f, separated by sep.
func (g *generator) several(least, most int, sep string, f func() string) string {
	var all []string
	for range least + g.IntN(most-least+1) {
		all = append(all, f())
	}
	return strings.Join(all, sep)
}

// word returns a short text with any characters except quotes, braces and those that languages
// escape.
func (g *generator) word() string {
	letters := []rune("abcdefgXYZ 0189_-.,;:é߀日本😀\u0301")
	return g.several(1, 8, "", func() string { return string(pick(g, letters...)) })
}

// integer returns a whole number of any size.
func (g *generator) integer() string {
	return fmt.Sprint(pick(g, int64(g.IntN(10)), int64(g.IntN(2000)-1000), g.Int64()>>g.IntN(60), int64(0), int64(-1)))
}

// float returns a number with a fraction.
func (g *generator) float() string {
	return pick(g, fmt.Sprintf("%.3f", g.NormFloat64()*100), fmt.Sprintf("%.17g", g.Float64()), fmt.Sprintf("%de%d", 1+g.IntN(99), g.IntN(60)-30), "0.1", "-0.0", "2.5")
}

func TestGenerate(t *testing.T) {
	a, b, c := generate(1, 300), generate(1, 300), generate(2, 300)
	same := 0
	for i := range a {
		if fmt.Sprint(a[i]) != fmt.Sprint(b[i]) {
			t.Errorf("%s: the same seed makes another program", a[i].Name)
		}
		if fmt.Sprint(a[i].Cells) == fmt.Sprint(c[i].Cells) {
			same++
		}
	}
	if same > 30 {
		t.Errorf("%d of 300 programs are the same with another seed", same)
	}
}
