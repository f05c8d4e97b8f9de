package driver

import (
	"errors"
	"math"
	"math/big"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/decimal"
)

// Price is what one of something costs, in 10^-12 of the currency of [executor.Money]: a gigabyte
// of memory costs less than a millionth for a second. In a file it is a decimal number.
type Price int64

const perMoney = 1_000_000 // Prices in one Money

// UnmarshalJSON reads a number or a string with up to twelve decimal places.
func (p *Price) UnmarshalJSON(raw []byte) error {
	n, err := decimal.Parse(raw, 12)
	if err != nil {
		return err
	}
	*p = Price(n)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (p Price) MarshalText() ([]byte, error) {
	return []byte(decimal.Format(int64(p), 12)), nil
}

// Prices are those of a backend. The zero value costs nothing.
type Prices struct {
	Creation  Price `json:"creation,omitempty"`   // of a sandbox
	Second    Price `json:"second,omitempty"`     // of the life of a sandbox, of any size
	CPUSecond Price `json:"cpu_second,omitempty"` // of each processor that the sandbox has
	GiBSecond Price `json:"gib_second,omitempty"` // of each GiB of memory that the sandbox has
	Run       Price `json:"run,omitempty"`        // or installation
	GiB       Price `json:"gib,omitempty"`        // that goes into a sandbox or comes out of it: files, artifacts, code, input and output of runs, ports
	// CPUs and MemoryBytes are what is paid for if the limits of a session do not say it.
	CPUs        float64 `json:"cpus,omitempty"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
}

// Validate returns all errors in p.
func (p Prices) Validate() error {
	var errs []error
	if !(p.CPUs >= 0 && p.CPUs <= 1e6) {
		errs = append(errs, At("cpus", errors.New("want 0 to 1000000")))
	}
	if p.MemoryBytes < 0 {
		errs = append(errs, At("memory_bytes", errors.New("negative")))
	}
	return errors.Join(errs...)
}

// Life returns what a sandbox with these limits has cost after it has lived for d, without its runs
// and files. It is rounded once, so that the differences between two values add up.
func (p Prices) Life(l executor.Limits, d time.Duration) executor.Money {
	l = l.Or(executor.Limits{CPUs: p.CPUs, MemoryBytes: p.MemoryBytes})
	rate := big.NewInt(int64(p.Second))
	rate.Add(rate, times(p.CPUSecond, int64(math.Round(l.CPUs*1000)), 1000))
	rate.Add(rate, times(p.GiBSecond, l.MemoryBytes, 1<<30))
	total := rate.Mul(rate, big.NewInt(int64(d)))
	total.Quo(total, big.NewInt(int64(time.Second)))
	return money(total.Add(total, big.NewInt(int64(p.Creation))))
}

// Runs returns the price of n runs.
func (p Prices) Runs(n int64) executor.Money { return money(times(p.Run, n, 1)) }

// Bytes returns the price of files of n bytes.
func (p Prices) Bytes(n int64) executor.Money { return money(times(p.GiB, n, 1<<30)) }

// times returns p * n / unit.
func times(p Price, n, unit int64) *big.Int {
	x := new(big.Int).Mul(big.NewInt(int64(p)), big.NewInt(n))
	return x.Quo(x, big.NewInt(unit))
}

// money rounds a sum of Prices, half up. What does not fit is the most that does.
func money(n *big.Int) executor.Money {
	n.Add(n, big.NewInt(perMoney/2))
	if n.Quo(n, big.NewInt(perMoney)); !n.IsInt64() {
		return math.MaxInt64
	}
	return executor.Money(n.Int64())
}

// WithPrices returns f with the prices that its provider publishes. They are used unless a
// configuration has others.
func WithPrices(f Factory, p Prices) Factory {
	f.prices = p
	return f
}

// Prices returns those of WithPrices.
func (f Factory) Prices() Prices { return f.prices }
