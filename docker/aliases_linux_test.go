package docker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// TestAliasesHideNothing tests aliases in directories in which an image has something: the
// directory of a user, a file, a directory that is a link. An alias is there where it has nothing,
// also in a volume.
func TestAliasesHideNothing(t *testing.T) {
	t.Parallel()
	const program = `
import os
os.makedirs("/home/somebody")
os.makedirs("/srv/empty")
os.makedirs("/media/volume")
os.symlink("/opt", "/link")
os.symlink("/srv", "/away")`
	image := commit(t, program, "VOLUME /media/volume")
	x := open(t, func(c *Config) { c.Image, c.Languages = image, nil })
	for name, want := range map[string]string{
		"/home/user":          `the image has "home/somebody/" in /home`,
		"/home/somebody":      `the image has "home/somebody/" in /home`,
		"/srv/empty":          `the image has "srv/empty/" in /srv`,
		"/etc/passwd":         "in /etc",
		"/etc/hostname/below": "which is no directory",
		"/etc/passwd/below":   "which is no directory",
		"/link/data":          "which is no directory",
		"/away/new/data":      "/away is there, and is no directory",
		"/media/volume/data":  "",
		"/srv/empty/data":     "",
		"/mnt/data":           "",
		"/new/deep/data":      "",
	} {
		s, err := x.Create(t.Context(), executor.Spec{Aliases: []string{name}})
		if want != "" {
			if !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
			if err == nil {
				s.Close()
			}
			continue
		}
		check(t, err)
		says(t, s, `import os; open("`+name+`/x", "w").close(); print(os.listdir("/workspace"), os.readlink("`+name+`"))`, "['x'] /workspace")
		check(t, s.Close())
	}
}

// TestImagesAreLookedAtOnce tests that the engine is asked once what an image has in a directory.
func TestImagesAreLookedAtOnce(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	e.contents[content{"image", "/a"}] = ""
	e.contents[content{"image", "/b"}] = `"x" in /b`
	if err := e.empty(t.Context(), "no-such-container", "image", "/a"); err != nil {
		t.Error(err)
	}
	if err := e.empty(t.Context(), "no-such-container", "image", "/b"); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.empty(ctx, "no-such-container", "another", "/a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
