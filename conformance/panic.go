package conformance

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/conformance/cases"
)

// recover turns a panic of the case into a finding. A panic in code of the suite is the suite's
// fault, one below it is the implementation's.
func (t *T) recover() {
	v := recover()
	if v == nil {
		return // also after Goexit
	}
	o := Failed
	if origin := panicOrigin(); slices.ContainsFunc(suitePackages, func(p string) bool { return strings.HasPrefix(origin, p) }) {
		o = Errored
	}
	stack := make([]byte, 16<<10)
	stack = stack[:runtime.Stack(stack, false)]
	t.find(o, fmt.Sprintf("panic: %v", v))
	t.mu.Lock()
	t.panicked = true
	t.mu.Unlock()
	for line := range strings.Lines(string(stack)) {
		t.Logf("%s", strings.TrimRight(line, "\n"))
	}
}

// suitePackages are the names of the packages of the suite, as they begin the names of functions.
var suitePackages = []string{reflect.TypeFor[suite]().PkgPath() + ".", reflect.TypeFor[cases.Case]().PkgPath() + "."}

// panicOrigin returns the function that panicked, seen from a deferred function.
func panicOrigin() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicking = panicking || f.Function == "runtime.gopanic"
		case panicking:
			return f.Function
		}
		if !more {
			return ""
		}
	}
}
