package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// MaxCases is the largest number of calls that Test makes.
const MaxCases = 200

// Suite is a function and the calls that test it.
type Suite struct {
	Code     string            // defines Function
	Function string            // a name, or one with dots
	Language executor.Language // python or javascript; empty: the first of the tool
	Packages []string          // see Input
	Files    []InputFile       // see Input
	Timeout  time.Duration     // for each call; zero: that of Options
	Cases    []Case
}

// Case is a call. Its values are those of JSON.
type Case struct {
	Name string // in reports; may be empty
	Args []any
	// Want is the expected return value. Numbers are equal if they differ by no more than rounding.
	// A tuple counts as a list.
	Want any
}

// Verdict is the outcome of a case.
type Verdict string

// The verdicts.
const (
	Passed   Verdict = "passed"
	Wrong    Verdict = "wrong"     // it returned something else
	Raised   Verdict = "raised"    // it raised an error, or ended the program
	TimedOut Verdict = "timed_out" // it reached the timeout or another limit: see CaseResult.Error
	NotRun   Verdict = "not_run"   // because the code can no longer run
)

// CaseResult is the result of a case.
type CaseResult struct {
	Name    string  `json:"name,omitempty"`
	Verdict Verdict `json:"verdict"`
	Got     any     `json:"got,omitempty"` // the value that the call returned
	Want    any     `json:"want"`
	Stdout  string  `json:"stdout,omitempty"`
	Error   string  `json:"error,omitempty"` // in words for a model
	Seconds float64 `json:"seconds"`
}

// SuiteResult is the result of Test.
type SuiteResult struct {
	Passed  int          `json:"passed"`
	Total   int          `json:"total"`
	Setup   Output       `json:"setup"`   // output of the code that defines the function
	Results []CaseResult `json:"results"` // one for each case, in order
}

var functionName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*$`)

// Test runs code that defines a function and then each call of it, all in one new sandbox that is
// removed at the end. The results are compared in this process, where the code cannot influence the
// comparison. An error in the suite is an *InputError. Other errors are failures of the executor,
// and r then has the results so far.
func (t *Tool) Test(ctx context.Context, c Conversation, s Suite) (r SuiteResult, err error) {
	caps := t.Capabilities()
	o := t.o.with(caps)
	in := Input{Code: s.Code, Language: t.language(s.Language), Packages: s.Packages, Files: s.Files, Timeout: s.Timeout}
	calls, err := s.calls(in.Language)
	if err := errors.Join(Check(in, caps, t.o), err); err != nil {
		return r, err
	}
	for _, k := range s.Cases {
		r.Results = append(r.Results, CaseResult{Name: k.Name, Verdict: NotRun, Want: k.Want})
	}
	r.Total = len(s.Cases)
	x, err := t.x.Create(ctx, t.spec(c, in.Language, caps))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	out, ok, err := furnish(ctx, x, in)
	if r.Setup = out; !ok {
		return r, err
	}
	run := func(in Input) (*executor.Result, Output, error) {
		req := request(in, o, x.Info())
		req.Artifacts = nil
		res, err := x.Run(ctx, req, nil)
		if res == nil || err != nil {
			return nil, refused(in.Language, err), err
		}
		return res, Report(Outcome{Input: in, Result: res}, x.Info().Capabilities, t.o), nil
	}
	defined := false
	for i, call := range calls {
		if !defined { // at the beginning, and after a call that lost the variables
			if _, r.Setup, err = run(in); err != nil || !r.Setup.Success {
				return r, err
			}
		}
		one := in
		one.Code = call
		res, out, err := run(one)
		if err != nil {
			return r, err
		}
		v := &r.Results[i]
		v.Stdout, v.Error, v.Seconds, v.Got = out.Stdout, out.Error, out.ExecutionTime, out.ReturnValue
		switch {
		case res.Status == executor.StatusOK && same(out.ReturnValue, s.Cases[i].Want):
			v.Verdict, v.Got = Passed, nil
			r.Passed++
		case res.Status == executor.StatusOK:
			v.Verdict = Wrong
		case res.Status == executor.StatusFailed:
			v.Verdict, v.Got = Raised, nil
		default:
			v.Verdict, v.Got = TimedOut, nil
		}
		defined = !res.StateLost && !res.FilesLost
	}
	return r, nil
}

// calls returns the code of each call.
func (s Suite) calls(l executor.Language) (calls []string, err error) {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !functionName.MatchString(s.Function) {
		add("%.80q is not the name of a function.", s.Function)
	}
	if l != executor.Python && l != executor.JavaScript && l != executor.TypeScript {
		add("Functions in %q cannot be tested; use python, javascript or typescript.", l)
	}
	if n := len(s.Cases); n == 0 || n > MaxCases {
		add("There are %d cases; want 1 to %d.", n, MaxCases)
	}
	for i, k := range s.Cases {
		if k.Args == nil {
			k.Args = []any{}
		}
		args, err := json.Marshal(k.Args)
		if _, bad := json.Marshal(k.Want); err != nil || bad != nil {
			add("Case %d has a value that JSON does not have.", i+1)
			continue
		}
		text, _ := json.Marshal(string(args)) // a JSON string is a string literal in both languages
		if l != executor.Python {
			calls = append(calls, fmt.Sprintf("JSON.parse(JSON.stringify((await %s(...JSON.parse(%s))) ?? null))", s.Function, text))
		} else {
			calls = append(calls, fmt.Sprintf("__import__('json').loads(__import__('json').dumps(%s(*__import__('json').loads(%s))))", s.Function, text))
		}
	}
	if len(problems) > 0 {
		return nil, &InputError{problems}
	}
	return calls, nil
}

// same reports whether two values are equal as JSON.
func same(got, want any) bool {
	a, err := plainValue(got)
	b, err2 := plainValue(want)
	return err == nil && err2 == nil && alike(a, b)
}

func plainValue(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func alike(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, err := a.Float64()
		y, err2 := b.Float64()
		if a == b || err != nil || err2 != nil || !strings.ContainsAny(string(a)+string(b), ".eE") {
			return a == b // integers of any size
		}
		return x == y || math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, alike)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, alike)
	}
	return reflect.DeepEqual(a, b)
}
