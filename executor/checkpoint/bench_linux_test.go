package checkpoint_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// BenchmarkMove measures a checkpoint of 10 MB of files and 1,000 variables on Docker and its
// restoration in another sandbox, besides the start of that.
func BenchmarkMove(b *testing.B) {
	x := inDocker(b, "bench-"+strings.ToLower(rand.Text()))
	from := talk{create(b, x, executor.Spec{}), ""}
	for n := range 20 {
		content := make([]byte, 500_000)
		_, _ = rand.Read(content)
		check(b, from.Files().Write(b.Context(), fmt.Sprintf("data/%d.bin", n), bytes.NewReader(content), 0))
	}
	from.says(b, "for n in range(1000): globals()[f'v{n}'] = [n, str(n), {'n': n / 7}]\ndel n")
	var made, restored, whole []time.Duration
	for b.Loop() {
		to := create(b, x, executor.Spec{})
		talk{to, ""}.says(b, "1") // its interpreter has started
		var archive bytes.Buffer
		began := time.Now()
		_, err := checkpoint.Make(b.Context(), from, &archive, checkpoint.Options{AllOrNothing: true})
		check(b, err)
		half := time.Now()
		r, err := checkpoint.Restore(b.Context(), to, &archive, checkpoint.Options{Known: true, AllOrNothing: true})
		check(b, err)
		end := time.Now()
		if len(r.Files) != 20 || len(r.Names()) != 1000 {
			b.Fatalf("%d files and %d names", len(r.Files), len(r.Names()))
		}
		made, restored, whole = append(made, half.Sub(began)), append(restored, end.Sub(half)), append(whole, end.Sub(began))
		check(b, to.Close())
	}
	for unit, d := range map[string][]time.Duration{"ms-make": made, "ms-restore": restored, "ms-both": whole} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2])/1e6, unit)
	}
}
