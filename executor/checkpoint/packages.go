package checkpoint

import (
	"context"
	"errors"

	"github.com/execbroker/execbroker/executor"
)

// packages returns Options.Packages with a language for each, because the next session may have
// another first language.
func (p *program) packages() (all []executor.Packages) {
	languages := p.session.Info().Capabilities.Languages
	for _, k := range p.opts.Packages {
		if k.Language == "" && len(languages) > 0 {
			k.Language = languages[0].Language
		}
		all = append(all, k)
	}
	return all
}

// install installs packages. Those that the session refuses, or that its installer cannot install,
// are omitted.
func (p *program) install(ctx context.Context, packages []executor.Packages) (installed []executor.Packages, omitted []Omission, err error) {
	for _, k := range packages {
		res, err := p.session.Install(ctx, k, nil)
		if err == nil {
			err = res.Err()
		} else if !refused(err) {
			return nil, nil, err
		}
		if err == nil {
			installed = append(installed, k)
			continue
		}
		for _, name := range k.Names {
			omitted = append(omitted, Omission{name, "package", printable(err.Error())})
		}
	}
	return installed, omitted, nil
}

// refused reports whether an error is about the packages and not about the backend.
func refused(err error) bool {
	for _, kind := range []error{executor.ErrUnsupported, executor.ErrDenied, executor.ErrInvalid, executor.ErrTooLarge} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
