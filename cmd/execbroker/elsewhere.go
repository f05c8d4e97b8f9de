package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
)

// openForCheck opens the backends of c to ask what they are, for a file that may be for another
// machine. If this machine lacks something for them, unchecked says what, and b has the backends as
// they would be where nothing is missing. err has the mistakes of the file itself. The caller
// closes b.
func (a *app) openForCheck(ctx context.Context, c backends.Config) (b *backends.Broker, unchecked []*executor.FieldError, err error) {
	b, here := backends.Open(ctx, a.env(), a.reg, a.shared(c), backends.WithoutPools())
	if here == nil {
		return b, nil, nil
	}
	env := a.env()
	env.Elsewhere = true
	b, err = backends.Open(ctx, env, a.reg, a.shared(c), backends.WithoutPools())
	if err != nil {
		return nil, nil, a.inFile(err)
	}
	for _, e := range executor.FieldErrors(here) {
		if e.Path == "" { // no part of the file is concerned
			return nil, nil, a.inFile(errors.Join(here, b.Close()))
		}
		unchecked = append(unchecked, e)
	}
	return b, unchecked, nil
}

// printUnchecked lists what this machine lacks.
func printUnchecked(w io.Writer, unchecked []*executor.FieldError) {
	for _, e := range unchecked {
		fmt.Fprintf(w, "not checked here: %s\n", plainText(e.Error()))
	}
}
