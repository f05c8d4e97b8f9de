package runner

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// host stands for this machine among the roots: directories with a system of their own, whose
// Python, and perhaps Node, is tested.
const host = ""

// roots returns this machine and the root directories that EXECBROKER_ROOTS lists, separated by
// colons. internal/ci makes them from Debian's packages.
func roots() []string {
	return append([]string{host}, filepath.SplitList(os.Getenv("EXECBROKER_ROOTS"))...)
}

// pythonOf returns the path of Python in a root. On this machine it is not what a shell of a
// developer finds first, but what any uid may execute.
func pythonOf(root string) string {
	if _, err := os.Stat(filepath.Join("/", root, "usr/bin/python3")); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

// inRoot returns the command line of a program in a root. It sees the directories of the tests, at
// the same place.
func inRoot(root string, argv ...string) []string {
	if root == host {
		return argv
	}
	const script = `root=$1 tmp=$2; shift 2
for d in /proc /dev /sys "$tmp"; do mkdir -p "$root$d"; mount --rbind "$d" "$root$d"; done
exec chroot "$root" "$@"`
	return append([]string{"unshare", "-m", "sh", "-ec", script, "sh", root, os.TempDir()}, argv...)
}

// nameOf is the name of a root in those of tests.
func nameOf(root string) string { return cmp.Or(strings.TrimPrefix(filepath.Base(root), "."), "host") }

// each runs a test with the Python of every root.
func each(t *testing.T, f func(t *testing.T, root string)) {
	for _, root := range roots() {
		t.Run(nameOf(root), func(t *testing.T) { f(t, root) })
	}
}

// eachNode runs a test in every root that has Node.
func eachNode(t *testing.T, f func(t *testing.T, root string)) {
	each(t, func(t *testing.T, root string) {
		if hasNode(root) {
			f(t, root)
		}
	})
}

// hasNode reports whether a root has Node. On this machine it has to be there.
func hasNode(root string) bool {
	_, err := os.Stat(filepath.Join(root, "usr/bin/node"))
	return root == host || err == nil
}
