package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Changed is driver.Changed.
type Changed struct {
	Name    string
	Size    int64
	ModTime time.Time
}

// defaultArtifactFiles is the default of executor.ArtifactRequest.
const defaultArtifactFiles = 100

// artifactLimits returns the limits of r, with their defaults.
func artifactLimits(r *executor.ArtifactRequest) (files int, contents int64) {
	return cmp.Or(r.MaxFiles, defaultArtifactFiles), cmp.Or(r.MaxBytes, executor.DefaultArtifactBytes)
}

// sniffLen is how much of a file http.DetectContentType looks at.
const sniffLen = 512

// Collect is driver.Collect.
func Collect(ctx context.Context, req *executor.ArtifactRequest, changed []Changed,
	read func(ctx context.Context, name string) (io.ReadCloser, error),
) (arts []executor.Artifact, omitted int, err error) {
	if req == nil {
		return nil, 0, nil
	}
	maxFiles, left := artifactLimits(req)
	files := selected(req.Globs, changed)
	for i, f := range files {
		if len(arts) == maxFiles {
			return arts, len(files) - i, nil
		}
		if ctx.Err() != nil {
			return arts, 0, context.Cause(ctx)
		}
		budget := int64(-1) // no contents
		if req.Contents && f.Size <= left {
			budget = left
		}
		a, err := artifact(ctx, f, budget, read)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // what the code left running may have removed it
		case err != nil:
			return arts, 0, err
		}
		left -= int64(len(a.Data))
		arts = append(arts, a)
	}
	return arts, 0, nil
}

// selected returns what matches one of globs, all if there are none, once for each name, in byte
// order.
func selected(globs []string, changed []Changed) []Changed {
	files := make([]Changed, 0, len(changed))
	for _, c := range changed {
		if validArtifactName(c.Name) && (len(globs) == 0 || slices.ContainsFunc(globs, func(g string) bool { return globMatch(g, c.Name) })) {
			files = append(files, c)
		}
	}
	slices.SortStableFunc(files, func(a, b Changed) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(files, func(a, b Changed) bool { return a.Name == b.Name })
}

// validArtifactName reports whether name is a clean relative name that executor.Files would take.
func validArtifactName(name string) bool {
	return fs.ValidPath(name) && name != "." && checkName(name) == nil
}

// artifact describes one file. It keeps the content if it is at most budget bytes; a negative
// budget keeps none.
func artifact(ctx context.Context, f Changed, budget int64, read func(context.Context, string) (io.ReadCloser, error)) (executor.Artifact, error) {
	a := executor.Artifact{Name: f.Name, Size: max(f.Size, 0), ModTime: f.ModTime}
	data, err := readPart(ctx, f.Name, max(budget+1, sniffLen), read)
	if err != nil && isFileError(err) && !errors.Is(err, fs.ErrNotExist) {
		a.MIME = mediaType(f.Name, nil)
		return a, nil
	}
	if err != nil {
		return a, err
	}
	a.MIME = mediaType(f.Name, data[:min(len(data), sniffLen)])
	if n := int64(len(data)); n <= budget {
		a.Data, a.Size = data, n
	} else {
		a.Size = max(a.Size, n)
	}
	return a, nil
}

// readPart returns at most n bytes from the beginning of a file.
func readPart(ctx context.Context, name string, n int64, read func(context.Context, string) (io.ReadCloser, error)) ([]byte, error) {
	rc, err := read(ctx, name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = io.Copy(&b, io.LimitReader(rc, n))
	if cerr := rc.Close(); err == nil && int64(b.Len()) < n { // an error of the rest does not matter if the rest is not wanted
		err = cerr
	}
	if err != nil && !isFileError(err) {
		err = fmt.Errorf("reading %q: %w", name, err)
	}
	return b.Bytes(), err
}

// isFileError reports whether err is about the file and not about the way to it.
func isFileError(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrExist)
}

// globMatch reports whether name matches pattern: path.Match for each element, and "**" for any
// number of elements. It walks the pattern once with the set of positions that are possible so far,
// so that no pattern takes more than their product.
func globMatch(pattern, name string) bool {
	elems := strings.Split(name, "/")
	at := make([]bool, len(elems)+1) // at[i]: the pattern so far matches elems[:i]
	at[0] = true
	for p := range strings.SplitSeq(pattern, "/") {
		if p == "**" {
			for i := range elems {
				at[i+1] = at[i+1] || at[i]
			}
			continue
		}
		for i := len(elems); i > 0; i-- {
			at[i] = false
			if at[i-1] {
				at[i], _ = path.Match(p, elems[i-1])
			}
		}
		at[0] = false
	}
	return at[len(elems)]
}

// mediaTypes are by extension what sniffing cannot tell apart: the key is what the content looks
// like.
var (
	textTypes = map[string]string{
		".csv": "text/csv", ".css": "text/css", ".htm": "text/html", ".html": "text/html", ".js": "text/javascript", ".json": "application/json",
		".md": "text/markdown", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".tsv": "text/tab-separated-values", ".txt": "text/plain",
		".xml": "text/xml",
	}
	zipTypes = map[string]string{
		".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
		".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	}
)

// mediaType tells by content, and where that leaves several by the extension. An extension alone
// never makes bytes an image.
func mediaType(name string, head []byte) string {
	sniffed, _, _ := strings.Cut(http.DetectContentType(head), ";")
	ext := strings.ToLower(path.Ext(name))
	switch {
	case strings.HasPrefix(sniffed, "text/"):
		return cmp.Or(textTypes[ext], sniffed)
	case sniffed == "application/zip":
		return cmp.Or(zipTypes[ext], sniffed)
	}
	return sniffed
}
