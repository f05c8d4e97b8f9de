package driver

import (
	"context"
	"io"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/engine"
)

// Changed is a regular file that a run created or changed, as the sandbox reports it. All of it is
// hostile input.
type Changed struct {
	Name    string    // relative to Workdir
	Size    int64     // as reported; the content decides
	ModTime time.Time // as reported
}

// Collect makes the artifacts of a run: it selects from changed what req asks for, in byte order of
// the names, finds out the media types and reads contents within the limits of req. read opens the
// named file, relative to Workdir, and is called for one file at a time; ctx governs the reading
// too. omitted counts the files that matched but are beyond MaxFiles. A nil req selects nothing.
//
// Names that a file below Workdir cannot have, or that executor.Files refuses, are left out, and so
// is a file that is gone by now. A file that cannot be read for another reason of the file system
// is listed without Data. With any other error of read, and when ctx ends, Collect returns it
// together with what it has so far.
func Collect(ctx context.Context, req *executor.ArtifactRequest, changed []Changed,
	read func(ctx context.Context, name string) (io.ReadCloser, error),
) (arts []executor.Artifact, omitted int, err error) {
	files := make([]engine.Changed, len(changed))
	for i, c := range changed {
		files[i] = engine.Changed(c)
	}
	return engine.Collect(ctx, req, files, read)
}
