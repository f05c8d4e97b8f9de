package bubblewrap

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// bare starts a Python in a sandbox that is made in the same way, without a supervisor, and returns
// when it has printed the value of an expression and ended.
func bare(ctx context.Context, tb testing.TB, code string) {
	tb.Helper()
	who, err := identify(false)
	check(tb, err)
	b := &box{want: executor.Limits{DiskBytes: defaultDisk}, who: who, note: "{}"}
	p, conn, err := start(ctx, b, []string{python, "-c", code})
	check(tb, err)
	text, err := io.ReadAll(conn)
	check(tb, err)
	check(tb, conn.Close())
	check(tb, p.kill(ctx))
	if got := strings.TrimSpace(string(text)); got != "42" {
		tb.Fatalf("got %q: %s", got, p.said)
	}
}

// cold creates a session, runs code in it and closes it.
func cold(tb testing.TB, x executor.Executor, code string) time.Duration {
	tb.Helper()
	begin := time.Now()
	s, err := x.Create(tb.Context(), executor.Spec{})
	check(tb, err)
	if got := says(tb, s, code); got != "42" {
		tb.Fatalf("got %q", got)
	}
	took := time.Since(begin)
	check(tb, s.Close())
	return took
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkColdStart compares a session up to its first result with "python3 -c" that is started
// the same way, by turns.
func BenchmarkColdStart(b *testing.B) {
	x, _ := open(b, func(*Config) {})
	const code = "print(6 * 7)"
	var plain, session []time.Duration
	for b.Loop() {
		begin := time.Now()
		bare(b.Context(), b, code)
		plain = append(plain, time.Since(begin))
		session = append(session, cold(b, x, code))
	}
	p, s := median(plain), median(session)
	b.ReportMetric(float64(p.Microseconds())/1000, "plain-ms")
	b.ReportMetric(float64(s.Microseconds())/1000, "session-ms")
	b.ReportMetric(float64((s-p).Microseconds())/1000, "more-ms")
	b.ReportMetric(0, "ns/op")
}
