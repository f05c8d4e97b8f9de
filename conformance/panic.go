package conformance

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
)

// recover turns a panic of the case into a finding. A panic in code of the suite is the suite's fault, one below it is the
// implementation's.
func (t *T) recover() {
	v := recover()
	if v == nil {
		return // also after Goexit
	}
	o := Failed
	if origin := panicOrigin(); strings.HasPrefix(origin, enginePackage) {
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

// enginePackage is the name of this package as it begins the names of its functions.
var enginePackage = reflect.TypeFor[suite]().PkgPath() + "."

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
