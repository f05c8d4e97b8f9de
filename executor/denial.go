package executor

import (
	"fmt"
	"time"
)

// Rule names the rule behind an ErrDenied.
type Rule string

// The rules.
const (
	RuleCodeSize   Rule = "code-size"    // bytes of code
	RuleRate       Rule = "rate"         // runs of a subject in any minute
	RuleRunsAtOnce Rule = "runs-at-once" // of a subject
	RuleSessions   Rule = "sessions"     // of a subject
	RuleOwner      Rule = "owner"        // the session belongs to another subject
	RulePackage    Rule = "package"      // the package is not on the list of allowed ones
	RuleQuotaRuns  Rule = "quota-runs"   // runs in an hour, a day or a month
	RuleQuotaTime  Rule = "quota-time"   // milliseconds of runs in such a period
	RuleQuotaCost  Rule = "quota-cost"   // cost in such a period, in millionths of the currency: see Money
)

// Denial says which rule refused a call with ErrDenied, and by which numbers, so that a program can
// tell its user in its own words. The zero value means a rule that is not in this package's list.
type Denial struct {
	Rule    Rule   `json:"rule,omitempty"`
	Limit   int64  `json:"limit,omitempty"`   // what the rule allows, in the unit of the rule; 0: the rule has no number
	Have    int64  `json:"have,omitempty"`    // the size of the call, or what the subject has already. What is left is Limit less Have
	Package string `json:"package,omitempty"` // of RulePackage: its name

	// For the rules of quotas: whose quota it is, as "subject" or as an attribute with its value
	// ("plan=pro"), and when it begins anew.
	Quota  string    `json:"quota,omitempty"`
	Renews time.Time `json:"renews,omitzero"`
}

// PackageError is in the chain of an error about packages that could not be installed. The backend
// itself works. With ErrUnavailable the source of the packages did not answer. With ErrInvalid the
// packages cannot be installed.
type PackageError struct {
	Packages Packages // the packages that were requested
	Err      error
}

// Error returns `packages: python ["x"]: the cause`.
func (e *PackageError) Error() string {
	return fmt.Sprintf("packages: %s %q: %v", e.Packages.Language, e.Packages.Names, e.Err)
}

// Unwrap supports errors.Is and errors.As.
func (e *PackageError) Unwrap() error { return e.Err }
