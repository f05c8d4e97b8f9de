package bubblewrap

import (
	"context"
	"os"
	"strings"

	"github.com/execbroker/execbroker/executor/driver"
)

// forbids are settings of the system that keep programs from making user namespaces, with the value that
// does.
var forbids = []struct{ name, value, words string }{
	{"kernel.unprivileged_userns_clone", "0", "keeps user namespaces for root"},
	{"user.max_user_namespaces", "0", "allows no user namespace"},
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "takes the rights in a user namespace from programs without an AppArmor profile"},
}

// forbidden says what of the system stands in the way, or nothing.
func forbidden() string {
	var found []string
	for _, f := range forbids {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(f.name, ".", "/"))
		if err == nil && strings.TrimSpace(string(text)) == f.value {
			found = append(found, f.name+"="+f.value+" "+f.words)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; " + strings.Join(found, "; ")
}

// Doctor examines what the backend needs.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	return nil
}
