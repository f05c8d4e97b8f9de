package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends/internal/ledger"
	"github.com/execbroker/execbroker/executor"
)

// agree checks, once the store has answered for a while, that the report and the quota of the
// account both have n runs.
func (s *shop) agree(l *ledger.Ledger, n int64, when string) {
	s.Helper()
	s.store.held.Store(0)
	s.store.lost.Store(0)
	s.store.down.Store(false)
	time.Sleep(time.Minute)
	rows, err := l.Report(s.Context(), time.Now().AddDate(0, -1, 0), time.Now())
	var reported int64
	for _, r := range rows {
		reported += r.Runs
	}
	if err != nil || reported != n {
		s.Errorf("%s: the report has %d runs, want %d: %v", when, reported, n, err)
	}
	if n == 0 {
		return
	}
	if r := s.refused(l, quota(ledger.Month, ledger.Amount{Runs: n}), aRun, executor.RuleQuotaRuns); r.Have != n {
		s.Errorf("%s: the quota has %d runs, want %d", when, r.Have, n)
	}
}

// TestFailedTakeover: the share of a process that seems dead is not archived before the write that
// takes it over has succeeded. Otherwise what the process spends later, on the same day, would
// never be reported.
func TestFailedTakeover(t *testing.T) {
	for failed := range 4 { // ticks during which writes fail
		bubble(t, func(s *shop) {
			a, b := s.process("a", 0), s.process("b", 0)
			runs := func(l *ledger.Ledger, n int) {
				for range n {
					s.take(l, ledger.Limits{}, aRun).End("x", ledger.Amount{Runs: 1})
				}
			}
			runs(a, 4)
			runs(b, 5)
			life := s.bury("b")
			time.Sleep(15 * time.Second) // a has missed b once
			s.store.held.Store(100)
			time.Sleep(time.Duration(failed) * 10 * time.Second)
			s.store.held.Store(0)
			time.Sleep(10 * time.Second)
			s.revive("b", life)
			runs(b, 5)
			s.agree(a, 14, fmt.Sprintf("after %d ticks", failed))
		})
	}
}

// TestReportAndQuota draws what processes do, which of them seem dead, and how the store answers.
// After each part the report and the quota agree with a count of what was granted.
func TestReportAndQuota(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(s *shop) {
				r := rand.New(rand.NewPCG(seed, 1))
				time.Sleep(24*time.Hour - time.Duration(r.IntN(15))*time.Minute) // the next day begins meanwhile
				names := []string{"a", "b", "c"}
				all, lives := map[string]*ledger.Ledger{}, map[string]string{}
				for _, n := range names {
					all[n] = s.process(n, 0)
				}
				held := map[string][]*ledger.Taken{}
				var granted int64
				for part := range 8 {
					for range 1 + r.IntN(12) {
						n := names[r.IntN(len(names))]
						switch r.IntN(8) {
						case 0, 1, 2:
							taken, _, err := all[n].Take(s.Context(), "alice", ledger.Limits{}, aRun)
							if err != nil {
								continue
							}
							granted++
							if r.IntN(3) == 0 {
								held[n] = append(held[n], taken)
							} else {
								taken.End("x", ledger.Amount{Runs: 1})
							}
						case 3:
							for _, taken := range held[n] {
								taken.End("y", ledger.Amount{Runs: 1})
							}
							held[n] = nil
						case 4:
							if lives[n] == "" && n != "a" {
								lives[n] = s.bury(n)
							} else if lives[n] != "" {
								s.revive(n, lives[n])
								delete(lives, n)
							}
						case 5:
							s.store.held.Store([]int32{0, 30, 100}[r.IntN(3)])
							s.store.lost.Store([]int32{0, 30}[r.IntN(2)])
						default:
							time.Sleep(time.Duration(r.IntN(30)) * time.Second)
						}
					}
					for n, taken := range held {
						for _, x := range taken {
							x.End("y", ledger.Amount{Runs: 1})
						}
						delete(held, n)
					}
					s.agree(all["a"], granted, fmt.Sprint("part ", part))
				}
			})
		})
	}
}
