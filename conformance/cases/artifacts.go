package cases

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// artifactsCase makes a case about Request.Artifacts, whose negative form is that they are refused.
func artifactsCase(id, doc string, programs []string, positive func(*T)) Case {
	return Case{
		ID: "artifacts/" + id, Feature: executor.FeatureArtifacts, Doc: doc, Programs: programs,
		Positive: positive,
		Negative: noArtifacts,
	}
}

func noArtifacts(t *T) {
	t.refuses(t.Shared(), executor.Request{Language: t.Language(), Artifacts: &executor.ArtifactRequest{}}, executor.FeatureArtifacts)
}

// The files that the program "make-artifacts" makes, in byte order of their names.
var madeArtifacts = []struct {
	name, mime, content string
}{
	{"blob.bin", "application/octet-stream", string(allBytes())},
	{"data/deep/plot.png", "image/png", pngHead + "plot"},
	{"data/table.csv", "text/", "a,b\n1,2\n"},
	{"report.txt", "text/", "report\n"},
}

// allBytes returns each byte value once.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// artifactCases are about the files that runs make.
func artifactCases() []Case {
	return []Case{
		artifactsCase("made", "The files that a run made are told, with size, time and media type, and without contents unless those are asked for.",
			[]string{"make-artifacts"}, emptied(func(t *T, s executor.Session) {
				res := t.ok(s, wanting(t.Program("make-artifacts"), executor.ArtifactRequest{}))
				made(t, res, false, "blob.bin", "data/deep/plot.png", "data/table.csv", "report.txt")
			})),
		{
			ID: "artifacts/home", Feature: executor.FeatureArtifacts, Needs: []executor.Feature{executor.FeatureEnv, executor.FeatureWorkdir, executor.FeatureCellNames},
			Programs: []string{"make-files", "write-file"},
			Doc:      "Names that begin with a dot are artifacts, except in a working directory that Spec.Env has made HOME.",
			Positive: func(t *T) {
				for home, want := range map[string][]string{executor.Home: {".cache/f0000"}, executor.Workdir: nil} {
					s := t.Session(inEnv(map[string]string{"HOME": home}))
					made(t, t.ok(s, wanting(t.Program("make-files", "dir", ".cache", "count", 1), executor.ArtifactRequest{})), false, want...)
					made(t, t.ok(s, wanting(t.Program("write-file", "name", "seen.txt", "text", "x"), executor.ArtifactRequest{})), false, "seen.txt")
				}
			},
			Negative: noArtifacts,
		},
		artifactsCase("contents", "With Contents the artifacts have them, as long as they fit into MaxBytes all together.",
			[]string{"make-artifacts"}, emptied(func(t *T, s executor.Session) {
				res := t.ok(s, wanting(t.Program("make-artifacts"), executor.ArtifactRequest{Contents: true}))
				made(t, res, true, "blob.bin", "data/deep/plot.png", "data/table.csv", "report.txt")
				res = t.ok(s, wanting(t.Program("make-artifacts"), executor.ArtifactRequest{Contents: true, MaxBytes: 100}))
				total := 0
				for _, a := range res.Artifacts {
					total += len(a.Data)
					if a.Name == "blob.bin" && a.Data != nil {
						t.Errorf("a file of 256 bytes has contents, although MaxBytes is 100")
					}
				}
				if len(res.Artifacts) != 4 || total > 100 || total == 0 {
					t.Errorf("got %s with %d bytes of contents, want all four with at most 100 bytes", artifactNames(res), total)
				}
			})),
		artifactsCase("globs", "Globs select by the name relative to the working directory, with ** for any depth.",
			[]string{"make-artifacts"}, emptied(func(t *T, s executor.Session) {
				for _, g := range []struct {
					globs []string
					want  []string
				}{
					{[]string{"*"}, []string{"blob.bin", "report.txt"}},
					{[]string{"data/*"}, []string{"data/table.csv"}},
					{[]string{"data/**"}, []string{"data/deep/plot.png", "data/table.csv"}},
					{[]string{"**/*.png", "report.*"}, []string{"data/deep/plot.png", "report.txt"}},
					{[]string{"**/report.txt"}, []string{"report.txt"}},
					{[]string{"*.none"}, nil},
				} {
					t.made(fmt.Sprintf("globs %q", g.globs), t.ok(s, wanting(t.Program("make-artifacts"), executor.ArtifactRequest{Globs: g.globs})), g.want...)
				}
			})),
		artifactsCase("omitted", "No more than MaxFiles are told, and how many others there were.",
			[]string{"make-artifacts", "make-files"}, emptied(func(t *T, s executor.Session) {
				res := t.ok(s, wanting(t.Program("make-artifacts"), executor.ArtifactRequest{MaxFiles: 3}))
				if len(res.Artifacts) != 3 || res.ArtifactsOmitted != 1 {
					t.Errorf("got %q and %d omitted, want 3 and 1", artifactNames(res), res.ArtifactsOmitted)
				}
				res = t.ok(s, wanting(t.Program("make-files", "dir", "many", "count", 130), executor.ArtifactRequest{}))
				if len(res.Artifacts) != 100 || res.ArtifactsOmitted != 30 {
					t.Errorf("got %d and %d omitted, want the default of 100 and 30", len(res.Artifacts), res.ArtifactsOmitted)
				}
			})),
		artifactsCase("changed", "A run's artifacts are the files that it made or changed, not those that were there, were read or are gone.",
			[]string{"write-file", "read-file", "remove-file"}, emptied(func(t *T, s executor.Session) {
				write := func(name, text string) executor.Request { return t.Program("write-file", "name", name, "text", text) }
				for _, step := range []struct {
					what string
					req  executor.Request
					want []string
				}{
					{"a new file", write("a.txt", "one"), []string{"a.txt"}},
					{"another file", write("b.txt", "one"), []string{"b.txt"}},
					{"a read", t.Program("read-file", "name", "a.txt"), nil},
					{"the same size, other content", write("a.txt", "two"), []string{"a.txt"}},
					{"a removal", t.Program("remove-file", "name", "b.txt"), nil},
				} {
					res := t.ok(s, wanting(step.req, executor.ArtifactRequest{Contents: true}))
					t.made(step.what, res, step.want...)
					if step.what == "the same size, other content" && len(res.Artifacts) == 1 && string(res.Artifacts[0].Data) != "two" {
						t.Errorf("%s: got the content %q", step.what, res.Artifacts[0].Data)
					}
				}
				if t.Has(executor.FeatureFiles) {
					t.put(s.Files(), "uploaded.txt", "x")
					res := t.ok(s, wanting(t.Program("read-file", "name", "uploaded.txt"), executor.ArtifactRequest{}))
					noneOf(t, "a file that was uploaded before is an artifact of a run that read it", artifactNames(res))
				}
			})),
		artifactsCase("failed-run", "A run that fails has artifacts as well.",
			[]string{"make-file-then-raise"}, emptied(func(t *T, s executor.Session) {
				res := t.Run(s, wanting(t.Program("make-file-then-raise"), executor.ArtifactRequest{Contents: true}))
				failed(t, res)
				t.madeOnly(res, "partial.txt", "partial")
			})),
		artifactsCase("not-asked", "Without Request.Artifacts a Result has none.",
			[]string{"make-artifacts"}, func(t *T) {
				if res := t.ok(t.Shared(), t.Program("make-artifacts")); len(res.Artifacts) > 0 || res.ArtifactsOmitted > 0 {
					t.Errorf("got %q and %d omitted, want none", artifactNames(res), res.ArtifactsOmitted)
				}
			}),
		artifactsCase("hostile", "Links and names that climb are no artifacts; odd names are told as they are.",
			[]string{"symlink", "write-file"}, emptied(func(t *T, s executor.Session) {
				for _, target := range []string{"/etc/passwd", "/proc/self/environ", "/dev/zero", ".."} {
					req := t.Program("symlink", "target", target, "link", "link"+strings.ReplaceAll(target, "/", "-"))
					res := t.ok(s, wanting(req, executor.ArtifactRequest{Contents: true}))
					noneOf(t, "artifacts, with a link to "+target, artifactNames(res))
				}
				for _, name := range []string{"new\nline", "..double", "a\"quote'`", "渐😀"} {
					res := t.ok(s, wanting(t.Program("write-file", "name", name, "text", name), executor.ArtifactRequest{Contents: true}))
					t.madeOnly(res, name, name)
				}
				res := t.ok(s, wanting(t.Program("write-file", "name", "/tmp/outside.txt", "text", "x"), executor.ArtifactRequest{}))
				noneOf(t, "a file outside of the working directory is an artifact", artifactNames(res))
			})),
	}
}

// wanting returns req with a request for artifacts.
func wanting(req executor.Request, a executor.ArtifactRequest) executor.Request {
	req.Artifacts = &a
	return req
}

// artifactNames returns the names of the artifacts of res.
func artifactNames(res *executor.Result) (names []string) {
	for _, a := range res.Artifacts {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

// made checks the names of the artifacts of res.
func (t *T) made(what string, res *executor.Result, want ...string) {
	equalLists(t, what, artifactNames(res), want)
}

// madeOnly checks that res has one artifact, with its content.
func (t *T) madeOnly(res *executor.Result, name, content string) {
	t.made("artifacts", res, name)
	if len(res.Artifacts) == 1 {
		equal(t, name, string(res.Artifacts[0].Data), content)
	}
}

// made checks artifacts of the program "make-artifacts".
func made(t *T, res *executor.Result, contents bool, want ...string) {
	t.made("artifacts", res, want...)
	equal(t, "artifacts omitted", res.ArtifactsOmitted, 0)
	for _, a := range res.Artifacts {
		for _, m := range madeArtifacts {
			if m.name != a.Name {
				continue
			}
			if a.Size != int64(len(m.content)) || a.ModTime.IsZero() || !strings.HasPrefix(a.MIME, m.mime) {
				t.Errorf("%s: got size %d, time %v, type %q, want size %d and type %s", a.Name, a.Size, a.ModTime, a.MIME, len(m.content), m.mime)
			}
			if contents && string(a.Data) != m.content || !contents && a.Data != nil {
				t.Errorf("%s: got the contents %s, want them: %v", a.Name, excerpt(string(a.Data)), contents)
			}
		}
		if path.IsAbs(a.Name) || path.Clean(a.Name) != a.Name || strings.HasPrefix(a.Name, "..") {
			t.Errorf("the name %s is not relative to the working directory", fmt.Sprintf("%q", a.Name))
		}
	}
}
