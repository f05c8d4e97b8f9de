// Command files writes a file to a sandbox, runs code that creates other files from it, and reads
// those through fs.FS.
package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/pyodide"
)

const text = `the quick brown fox jumps over the lazy dog
the dog sleeps on and the fox is gone
`

const code = `
import collections, json, pathlib

words = pathlib.Path("in/text.txt").read_text().split()
count = collections.Counter(words)

out = pathlib.Path("out")
out.mkdir()
(out / "words.csv").write_text("".join(f"{w},{n}\n" for w, n in count.most_common(3)))
(out / "summary.json").write_text(json.dumps({"words": len(words), "different": len(count)}))
`

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	box, err := pyodide.Open(ctx, driver.Env{Owner: "files"}, pyodide.Config{})
	if err != nil {
		return err
	}
	defer box.Close()
	s, err := box.Create(ctx, executor.Spec{Languages: []executor.Language{executor.Python}})
	if err != nil {
		return err
	}
	defer s.Close()

	if err := s.Files().Write(ctx, "in/text.txt", strings.NewReader(text), 0); err != nil {
		return err
	}
	res, err := s.Run(ctx, executor.Request{Code: code}, nil)
	if err != nil {
		return err
	}
	if err := res.Err(); err != nil {
		return err
	}

	// Everything that takes an fs.FS works on the files of a session.
	files := executor.FS(ctx, s)
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s, %d bytes\n", name, len(content))
		if strings.HasPrefix(name, "out/") {
			fmt.Fprintf(w, "%s\n", strings.TrimSpace(string(content)))
		}
		return nil
	})
}
