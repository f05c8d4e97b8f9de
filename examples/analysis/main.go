// Command analysis analyses four years of weather data in a sandbox. It uploads a file. The results
// are text while the code runs, a table as the value of the code, and a chart as a file.
//
//	go run ./examples/analysis [--backend NAME] [--config FILE] [--pandas] [--out DIR]
//
// Without a configuration file the backend is a type with its default settings. The program needs
// only the standard library of Python, so it works on every backend. Its variant with pandas and
// matplotlib needs an image that contains them, such as the one in docker.yaml.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

//go:embed analysis.py
var plainCode string

//go:embed analysis_pandas.py
var pandasCode string

//go:embed data/seattle-weather.csv
var data []byte

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("analysis", flag.ContinueOnError)
	backend := flags.String("backend", "", "`name` in the configuration, or without one a type (default pyodide)")
	config := flags.String("config", "", "configuration `file`")
	pandas := flags.Bool("pandas", false, "run the variant with pandas and matplotlib")
	out := flags.String("out", "", "`directory` for charts; empty: not saved")
	if err := flags.Parse(args); err != nil {
		return err
	}
	box, err := open(ctx, *backend, *config)
	if err != nil {
		return err
	}
	defer box.Close()

	s, err := box.Create(ctx, executor.Spec{Languages: []executor.Language{executor.Python}})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Files().Write(ctx, "seattle-weather.csv", bytes.NewReader(data), 0); err != nil {
		return err
	}
	code := plainCode
	if *pandas {
		code = pandasCode
	}
	req := executor.Request{Code: code, Artifacts: &executor.ArtifactRequest{Globs: []string{"*.svg"}, Contents: true}}
	res, err := s.Run(ctx, req, func(e executor.Event) error {
		if e.Kind == executor.EventStdout || e.Kind == executor.EventStderr {
			_, err := w.Write(e.Data)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if res.Exception != nil {
		fmt.Fprint(w, res.Exception.Traceback)
	}
	if err := res.Err(); err != nil {
		return err
	}
	figures := 0
	for _, o := range res.Outputs {
		switch mime, data, ok := o.Data.Best("image/png", "text/markdown", "text/plain"); {
		case ok && mime == "image/png":
			// A figure is treated like an artifact, with a name that we choose.
			figures++
			res.Artifacts = append(res.Artifacts, executor.Artifact{Name: fmt.Sprintf("figure-%d.png", figures), MIME: mime, Size: int64(len(data)), Data: data})
		case ok:
			fmt.Fprintf(w, "\n%s\n", data)
		}
	}
	for _, a := range res.Artifacts {
		fmt.Fprintf(w, "\n%s: %s, %d bytes\n", a.Name, a.MIME, a.Size)
		if *out != "" {
			if err := save(*out, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens the backend that the flags name. Nothing else depends on the backend.
func open(ctx context.Context, name, config string) (executor.Executor, error) {
	var cfg backends.Config
	if config == "" {
		name = cmp.Or(name, "pyodide")
		cfg.Backends = map[string]backends.Backend{name: {Type: name}}
	} else {
		text, err := os.ReadFile(config)
		if err != nil {
			return nil, err
		}
		if cfg, err = backends.Parse(text); err != nil {
			return nil, err
		}
	}
	if name != "" {
		b, ok := cfg.Backends[name]
		if !ok {
			return nil, fmt.Errorf("there is no backend %s, but %s", name, strings.Join(slices.Sorted(maps.Keys(cfg.Backends)), ", "))
		}
		cfg.Backends = map[string]backends.Backend{name: b}
	}
	return backends.Open(ctx, driver.Env{Owner: "examples"}, all.Registry(), cfg)
}

// save writes an artifact below a directory. Its name comes from the sandbox, and os.Root prevents
// it from leaving the directory.
func save(dir string, a executor.Artifact) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.WriteFile(filepath.Base(filepath.FromSlash(a.Name)), a.Data, 0o644)
}
