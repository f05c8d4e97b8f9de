// Package decimal reads and writes decimal numbers exactly, as whole numbers of a small unit.
package decimal

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Parse reads a JSON number or string as a whole number of units of 10^-places. It is exact:
// an amount in between is an error, and so is one that is negative or does not fit.
func Parse(p []byte, places int) (int64, error) {
	text := string(p)
	if strings.HasPrefix(text, `"`) {
		var err error
		if text, err = strconv.Unquote(text); err != nil {
			return 0, errors.New("not a decimal number")
		}
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	e, err := strconv.Atoi("0" + exponent)
	if exponent != "" {
		e, err = strconv.Atoi(exponent)
	}
	// The bounds keep a hostile text from becoming a huge number.
	if strings.Trim(mantissa, "0123456789.") != "" || len(mantissa) > 40 || err != nil || e < -40 || e > 40 {
		return 0, errors.New("not a decimal number, such as 0.0504")
	}
	r, ok := new(big.Rat).SetString(mantissa)
	if !ok {
		return 0, errors.New("not a decimal number, such as 0.0504")
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(e+places, -e-places))), nil)
	if e+places >= 0 {
		r.Mul(r, new(big.Rat).SetInt(scale))
	} else {
		r.Quo(r, new(big.Rat).SetInt(scale))
	}
	switch {
	case !r.IsInt():
		return 0, fmt.Errorf("has more than %d decimal places", places)
	case !r.Num().IsInt64() || r.Num().Int64() == math.MaxInt64:
		return 0, errors.New("too large")
	}
	return r.Num().Int64(), nil
}

// Format returns n units of 10^-places as a decimal number without zeros at its end.
func Format(n int64, places int) string {
	sign, u := "", uint64(n)
	if n < 0 {
		sign, u = "-", -u
	}
	digits := fmt.Sprintf("%0*d", places+1, u)
	whole, rest := digits[:len(digits)-places], strings.TrimRight(digits[len(digits)-places:], "0")
	if rest == "" {
		return sign + whole
	}
	return sign + whole + "." + rest
}
