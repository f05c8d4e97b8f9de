package runner

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestAliases tests what may be there where a link is to be made: only directories that nobody but
// root can write to, and a link of an earlier start.
func TestAliases(t *testing.T) {
	t.Parallel()
	const name = "/mnt/a/data"
	for what, c := range map[string]struct{ prepare, want string }{
		"nothing":          {"", ""},
		"directory above":  {"mkdir /mnt/a", ""},
		"earlier link":     {"mkdir /mnt/a && ln -s $WORK /mnt/a/data", ""},
		"link elsewhere":   {"mkdir /mnt/a && ln -s /tmp /mnt/a/data", "has a link of that name"},
		"link of others":   {"mkdir /mnt/a && ln -s $WORK /mnt/a/data && chown -h 12345 /mnt/a/data", "has a link of that name"},
		"empty directory":  {"mkdir -p /mnt/a/data", "has a directory of that name"},
		"file":             {"mkdir /mnt/a && touch /mnt/a/data", "has a file of that name"},
		"file above":       {"touch /mnt/a", "/mnt/a is there, and is no directory"},
		"link above":       {"mkdir /mnt/b && ln -s /mnt/b /mnt/a", "/mnt/a is there, and is no directory"},
		"open above":       {"mkdir -m 777 /mnt/a", "/mnt/a is there, and is no directory that only root can write to"},
		"open far above":   {"chmod 1777 /mnt", "/mnt is there"},
		"group above":      {"mkdir -m 775 /mnt/a", "/mnt/a is there"},
		"closed above":     {"mkdir -m 700 /mnt/a", "/mnt/a is there"},
		"of others above":  {"mkdir /mnt/a && chown 12345 /mnt/a", "/mnt/a is there"},
		"no place for one": {"mount -o remount,ro /mnt", "/mnt/a: Read-only file system"},
	} {
		t.Run(strings.ReplaceAll(what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			var work string
			s, err := startAs(t, func(argv []string) []string {
				script := "WORK=" + work + "; mount -t tmpfs -o mode=755 none /mnt || exit 99; umask 022; " + c.prepare + "\n" + `exec "$@"`
				return append([]string{"unshare", "--mount", "sh", "-c", script, "sh"}, argv...)
			}, func(cfg *Config) { cfg.Aliases, work = []string{name}, cfg.Workdir })
			if c.want != "" {
				if kindOf(err) != executor.ErrUnsupported || !strings.Contains(err.Error(), "alias "+name) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v\n%s", err, s.stderr)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, s.stderr)
			}
			const code = `
import os
with open("` + name + `/x", "w") as f:
    f.write("kept")
for do in os.remove, os.rmdir, lambda n: os.rename(n, n + "2"), lambda n: os.chmod(os.path.dirname(n), 0o777), lambda n: os.mkdir(n + "2"):
    try:
        do("` + name + `")
        print("done")
    except OSError:
        pass
print(os.listdir("."), os.getcwd() == os.path.realpath("` + name + `"))`
			if r := s.code(t, code); r.stdout != "['x'] True\n" {
				t.Errorf("got %+v", r)
			}
		})
	}
}
