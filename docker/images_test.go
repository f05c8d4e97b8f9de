package docker

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// imageKind is what is to be found in an image.
type imageKind struct {
	version string
	missing string // of Create for Python
	js      string // of Create for JavaScript
}

// Images of older Debians have older versions of Python.
func TestOldImages(t *testing.T) {
	t.Parallel()
	testImages(t, map[string]imageKind{
		dockertest.Bullseye: {"3.9", "", "language:javascript"},
		dockertest.Bookworm: {"3.11", "", "language:javascript"},
	})
}

// What the oddities of images make of a session.
func TestImagesOfAllKinds(t *testing.T) {
	t.Parallel()
	testImages(t, map[string]imageKind{
		dockertest.Trixie:   {"3.13", "", "language:javascript"},
		dockertest.NoCtypes: {"3.13", "", "language:javascript"},
		dockertest.RootOnly: {"3.13", "", "language:javascript"},
		dockertest.Python:   {"3.13", "", ""},
		dockertest.NoPython: {"", "python3", "python3"},
	})
}

func testImages(t *testing.T, images map[string]imageKind) {
	t.Helper()
	for image, c := range images {
		t.Run(strings.ReplaceAll(image[strings.IndexByte(image, '/')+1:], ":", "-"), func(t *testing.T) {
			t.Parallel()
			x := open(t, func(c *Config) { c.Image = image })
			for language, missing := range map[executor.Language]string{executor.Python: c.missing, executor.JavaScript: c.js} {
				s, err := x.Create(t.Context(), executor.Spec{Languages: []executor.Language{language}})
				if missing == "" {
					if err != nil {
						t.Errorf("%s: %v", language, err)
					} else if language == executor.Python {
						says(t, s, "import os, sys\nprint('%d.%d' % sys.version_info[:2], os.getcwd(), os.getuid() > 10000)", c.version+" /workspace True")
						says(t, s, "with open('f', 'w') as f: f.write('x')\nprint(os.path.expanduser('~'), os.listdir('.'))", "/tmp/home ['f']")
					}
					continue
				}
				var e *executor.Error
				if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || !slices.Equal(e.Missing, []string{missing}) || e.Ran != executor.RanNo {
					t.Errorf("%s: got %v, want missing %q", language, err, missing)
				}
			}
		})
	}
}

func TestTemplatesAndLimits(t *testing.T) {
	t.Parallel()
	x := open(t, func(c *Config) {
		c.Templates = map[string]Template{"lean": {Image: dockertest.Trixie, Limits: Limits{Memory: 100 << 20, Processes: 10}}}
		c.Limits = Limits{CPUs: 0.5, Disk: 1 << 20}
		c.MaxLimits = Limits{Memory: 1 << 30}
	})
	s := create(t, x, executor.Spec{Template: "lean", Languages: []executor.Language{executor.Python}})
	says(t, s, "import shutil; print(shutil.which('node'))", "None")
	disk := int64(1<<20 + scratch + shared)
	if got, want := s.Info().Limits, (executor.Limits{CPUs: 0.5, MemoryBytes: 100<<20 + disk + supervisorMemory, DiskBytes: disk, Processes: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for info, err := range x.Sessions(t.Context(), nil) {
		if err != nil || info.Template != "lean" || info.Limits != s.Info().Limits || !info.Created.Equal(s.Info().Created) {
			t.Errorf("listed: got %+v, %v", info, err)
		}
	}
	for name, spec := range map[string]executor.Spec{
		"memory<=1073741824": {Limits: executor.Limits{MemoryBytes: 2 << 30}},
		"template:new":       {Template: "new"},
	} {
		var e *executor.Error
		if _, err := x.Create(t.Context(), spec); !errors.As(err, &e) || !slices.Equal(e.Missing, []string{name}) {
			t.Errorf("got %v, want missing %s", err, name)
		}
	}
	// Only the engine knows how large its machine is.
	var e *executor.Error
	if _, err := x.Create(t.Context(), executor.Spec{Limits: executor.Limits{CPUs: 4096, DiskBytes: 1 << 60}}); !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || len(e.Missing) != 2 {
		t.Errorf("got %v, want missing cpus and memory", err)
	}
}
