package live

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseBudget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{
		"2USD": 2, "0.50 USD": 0.5, " 1e-3USD ": 0.001, "": 0, "2": 0, "2EUR": 0, "-1USD": 0, "0USD": 0, "NaNUSD": 0, "InfUSD": 0, "USD": 0,
	} {
		if got, err := ParseBudget(text); got != want && err == nil || (err == nil) != (want > 0) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
}

// TestMeter counts what sandboxes cost, and ends a run before that is more than was allowed.
func TestMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		const rate = 0.01 // USD in a second
		m := newMeter(Bounds{USD: 10, Sandboxes: 3, Time: time.Hour}, cancel)
		done := m.watch()
		defer done()
		make := func(id string, life time.Duration) {
			if err := m.admit(rate); err != nil {
				t.Fatal(err)
			}
			s := sandbox{since: time.Now(), rate: rate}
			if life > 0 {
				s.until = time.Now().Add(life)
			}
			m.began(id, s)
		}
		make("a", 0)
		make("b", 10*time.Second)
		time.Sleep(20 * time.Second)
		m.gone("a")
		m.gone("a") // a second answer counts nothing
		if got := m.spent(); got.Sandboxes != 2 || math.Abs(got.Seconds-30) > 1e-6 || math.Abs(got.USD-0.3) > 1e-6 {
			t.Errorf("got %+v, want 20 seconds of one and 10 of the other", got)
		}
		m.extended("b", time.Now().Add(time.Hour))
		if got := m.spent(); math.Abs(got.Seconds-40) > 1e-6 {
			t.Errorf("got %+v, want 20 seconds of each", got)
		}
		m.gone("b")
		make("c", 0)
		// 0.4 is spent, and 2.1 is what its removal may cost: 750 seconds are left.
		time.Sleep(749 * time.Second)
		if ctx.Err() != nil {
			t.Errorf("stopped at %+v: %v", m.spent(), context.Cause(ctx))
		}
		time.Sleep(3 * time.Second)
		if !errors.Is(context.Cause(ctx), errMoney) {
			t.Errorf("got %v at %+v, want that the money is used up", context.Cause(ctx), m.spent())
		}
		if got := m.committed(time.Now()); got > 10+3*rate {
			t.Errorf("got %v, want what removing costs to be kept back", got)
		}
		if err := m.admit(rate); !errors.Is(err, errSandboxes) {
			t.Errorf("got %v, want that three is all", err)
		}
	})
}

func TestRates(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]float64{
		`{"config":{"guest":{"cpu_kind":"shared","cpus":1,"memory_mb":256}}}`:       2.02,
		`{"config":{"guest":{"cpu_kind":"shared","cpus":2,"memory_mb":1536}}}`:      2*2.02 + 5,
		`{"config":{"guest":{"cpu_kind":"performance","cpus":1,"memory_mb":2048}}}`: 32,
	} {
		if got := flyRate([]byte(body)) * month; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: got %v a month, want %v", body, got, want)
		}
	}
	if got := flyRate([]byte(`{"config":{"guest":{"cpu_kind":"gpu"}}}`)); got >= 0 {
		t.Errorf("got %v, want that the price is not known", got)
	}
}
