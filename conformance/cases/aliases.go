package cases

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// The aliases of these cases: two in directories that most images have, or have not.
const (
	alias      = "/mnt/data"
	otherAlias = "/mnt/conformance/work"
)

func withAliases(spec *executor.Spec) { spec.Aliases = []string{alias, otherAlias} }

// aliasCases are about other names of the working directory.
func aliasCases() []Case {
	all := []Case{
		{
			ID: "names", PerLanguage: true, Needs: []executor.Feature{executor.FeatureFiles, executor.FeatureWorkdir}, Programs: []string{"write-file", "read-file", "cwd"},
			Doc: "A file is the same by each name of the working directory, for code, for Files and for Request.Dir, and the directory itself has one name.",
			Positive: func(t *T) {
				s := t.Session(withAliases)
				f := s.Files()
				equalLists(t, "SessionInfo.Aliases", s.Info().Aliases, []string{alias, otherAlias})
				t.says(s, t.Program("cwd"), executor.Workdir)
				names := []string{executor.Workdir, alias, otherAlias}
				for i, name := range names {
					next, text := names[(i+1)%len(names)], "by "+name
					t.ok(s, t.Program("write-file", "name", name+"/code.txt", "text", text))
					t.says(s, t.Program("read-file", "name", next+"/code.txt"), text)
					t.says(s, t.Program("read-file", "name", "code.txt"), text)
					t.holds(f, next+"/code.txt", text)
					t.put(f, name+"/files.txt", text)
					t.holds(f, next+"/files.txt", text)
					t.says(s, t.Program("read-file", "name", next+"/files.txt"), text)
					t.lists(f, name, "code.txt", "files.txt")
					if t.Has(executor.FeatureDir) {
						t.says(s, inDir(t.Program("cwd"), name), executor.Workdir)
					}
				}
				t.noError(f.Rename(t.Context(), alias+"/code.txt", otherAlias+"/sub.txt"), "rename from one name to another")
				t.lists(f, ".", "files.txt", "sub.txt")
				t.noError(f.Remove(t.Context(), alias+"/sub.txt"), "remove by an alias")
				t.missing(f, "sub.txt")
			},
		},
		{
			ID: "artifacts", PerLanguage: true, Needs: []executor.Feature{executor.FeatureArtifacts, executor.FeatureEnv}, Programs: []string{"write-file"},
			Doc: "Artifacts have names relative to the working directory, whatever name the code, the globs and HOME have for it.",
			Positive: func(t *T) {
				s := t.Session(withAliases)
				for glob, want := range map[string][]string{
					"": {"a.txt"}, "*.txt": {"a.txt"}, alias + "/*.txt": {"a.txt"}, executor.Workdir + "/**": {"a.txt"}, otherAlias + "/b*": nil,
				} {
					var ask executor.ArtifactRequest
					if glob != "" {
						ask.Globs = []string{glob}
					}
					made(t, t.ok(s, wanting(t.Program("write-file", "name", alias+"/a.txt", "text", "for "+glob), ask)), false, want...)
				}
				for _, glob := range []string{"/etc/*", alias, alias + "x/*", path.Dir(alias) + "/*", alias + "/../*"} {
					t.runFails("the glob "+glob, s, wanting(t.Program("write-file", "name", "never.txt", "text", "x"), executor.ArtifactRequest{Globs: []string{glob}}), executor.ErrInvalid)
				}
				home := t.Session(withAliases, inEnv(map[string]string{"HOME": alias}))
				made(t, t.ok(home, wanting(t.Program("write-file", "name", ".cache", "text", "x"), executor.ArtifactRequest{})), false)
			},
		},
		{
			ID: "kept", PerLanguage: true, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"spoil-alias", "write-file", "read-file"},
			Doc: "Neither code nor Files remove, replace or rename an alias, or write to the directory above it.",
			Positive: func(t *T) {
				s := t.Session(withAliases)
				f := s.Files()
				t.put(f, "victim.txt", "victim")
				for _, name := range []string{alias, otherAlias} {
					t.says(s, t.Program("spoil-alias", "name", name, "above", path.Dir(name), "file", executor.Workdir+"/victim.txt"), "done")
					t.says(s, t.Program("read-file", "name", name+"/victim.txt"), "victim")
				}
				for _, name := range []string{alias, otherAlias, path.Dir(alias), path.Dir(otherAlias), alias + "/..", alias + "/."} {
					t.isNo("remove of "+name, f.Remove(t.Context(), name), fs.ErrInvalid)
					t.isNo("rename of "+name, f.Rename(t.Context(), name, "moved"), fs.ErrInvalid)
					t.isNo("rename to "+name, f.Rename(t.Context(), "victim.txt", name), fs.ErrInvalid)
				}
				// Names are text: this is a file in the directory of the alias, where code cannot
				// write, and not one next to the working directory.
				for _, name := range []string{alias + "/../climbed.txt", path.Dir(otherAlias) + "/beside.txt"} {
					t.isNo("write of "+name, f.Write(t.Context(), name, strings.NewReader("x"), 0), fs.ErrPermission)
				}
				t.isNo("mkdir of "+alias, f.Mkdir(t.Context(), alias), fs.ErrExist)
				t.says(s, t.Program("read-file", "name", alias+"/victim.txt"), "victim")
				t.lists(f, otherAlias, "victim.txt")
			},
		},
		{
			ID: "attach", Needs: []executor.Feature{executor.FeatureAttach, executor.FeatureFiles}, Programs: []string{"write-file"},
			Doc: "Who attaches has the aliases that the session was created with, and Sessions tells them.",
			Positive: func(t *T) {
				s := t.Session(withAliases)
				t.ok(s, t.Program("write-file", "name", alias+"/a.txt", "text", "x"))
				again := t.attaches(t.Open(nil), s.Info().Handle)
				equalLists(t, "SessionInfo.Aliases", again.Info().Aliases, s.Info().Aliases)
				t.holds(again.Files(), alias+"/a.txt", "x")
				t.isNo("remove of an alias", again.Files().Remove(t.Context(), alias), fs.ErrInvalid)
				if t.Has(executor.FeatureList) {
					found := t.listed(t.Executor())
					if len(found) != 1 || !slices.Equal(found[0].Aliases, s.Info().Aliases) {
						t.Errorf("Sessions: got %+v", found)
					}
				}
			},
		},
		{
			ID: "taken", Needs: []executor.Feature{executor.FeatureFiles},
			Doc: "Create refuses an alias with the name of something that is there, or below a file, with ErrUnsupported, and makes no sandbox.",
			Positive: func(t *T) {
				there := t.somethingThere(t.Shared().Files())
				for _, name := range there {
					err := t.createFails("the alias "+name, func(spec *executor.Spec) { spec.Aliases = []string{name} }, executor.ErrUnsupported)
					if e := (*executor.Error)(nil); errors.As(err, &e) && e.Err == nil {
						t.Errorf("the alias %s: the error %v does not say what is there", name, err)
					}
				}
			},
		},
	}
	for i := range all {
		all[i].ID, all[i].Feature = "aliases/"+all[i].ID, executor.FeatureAliases
		all[i].Negative = refusing("aliases", withAliases, executor.FeatureAliases)
	}
	return all
}

// somethingThere returns names that an alias could have were it not for what a sandbox has: that of
// a directory or file that the sandbox came with, and if it finds a file, one below it.
func (t *T) somethingThere(f executor.Files) (found []string) {
	for _, dir := range []string{"/etc", "/usr", "/home", "/lib"} {
		for i, err := range f.List(t.Context(), dir) {
			name := path.Join(dir, i.Name)
			if err != nil || (executor.Spec{Aliases: []string{name}}).Validate() != nil {
				break
			}
			if len(found) == 0 {
				found = append(found, name)
			}
			if i.Mode.IsRegular() {
				return append(found, name+"/below")
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("a sandbox has nothing in /etc, /usr, /home and /lib")
	}
	return found
}
