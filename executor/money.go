package executor

import "github.com/execbroker/execbroker/internal/decimal"

// Money is an amount in millionths of a unit of one currency, which the program chooses: prices,
// quotas and costs of one configuration are all in the same. Its text is decimal, as in "0.0504".
type Money int64

// String returns the amount without zeros at its end, as in "0.0504" or "12".
func (m Money) String() string { return decimal.Format(int64(m), 6) }

// MarshalText implements encoding.TextMarshaler.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON reads a number or a string. It fails if the amount is not a whole number of
// millionths, is negative, or does not fit.
func (m *Money) UnmarshalJSON(p []byte) error {
	n, err := decimal.Parse(p, 6)
	if err != nil {
		return err
	}
	*m = Money(n)
	return nil
}
