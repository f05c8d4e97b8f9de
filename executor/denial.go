package executor

import "fmt"

// Rule names a rule that refuses with ErrDenied.
type Rule string

// The rules.
const (
	RuleCodeSize   Rule = "code-size"    // bytes of code
	RuleRate       Rule = "rate"         // runs of a subject in any minute
	RuleRunsAtOnce Rule = "runs-at-once" // of a subject
	RuleSessions   Rule = "sessions"     // of a subject
	RuleOwner      Rule = "owner"        // the session is another subject's
	RulePackage    Rule = "package"      // it is not on a list
)

// Denial says of an ErrDenied which rule has refused and by which figures, so that a program can
// tell its user in its own words. The zero value is that of a rule of somebody else.
type Denial struct {
	Rule    Rule   `json:"rule,omitempty"`
	Limit   int64  `json:"limit,omitempty"`   // what the rule allows, as it counts; 0: it has no number
	Have    int64  `json:"have,omitempty"`    // what the call has, or the subject already
	Package string `json:"package,omitempty"` // of RulePackage: its name
}

// PackageError is in the chain of errors that are about packages which could not be had: the
// backend itself works. With ErrUnavailable what packages come from did not answer, with ErrInvalid
// they cannot be installed.
type PackageError struct {
	Packages Packages // that were asked for
	Err      error
}

// Error returns `packages: python ["x"]: the cause`.
func (e *PackageError) Error() string {
	return fmt.Sprintf("packages: %s %q: %v", e.Packages.Language, e.Packages.Names, e.Err)
}

// Unwrap supports errors.Is and errors.As.
func (e *PackageError) Unwrap() error { return e.Err }
