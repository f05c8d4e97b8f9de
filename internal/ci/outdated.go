package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// dependency is one that this repository names.
type dependency struct {
	where, name  string
	has, latest  string
	note         string // that it is deprecated or retracted
	unanswered   string // why nobody knows
	lookedUpWith string // go or npm
}

// outdated lists the direct dependencies of go.mod and of the lock files of npm that have a later
// version, or are deprecated or retracted. It counts nothing, and fails if a registry did not
// answer: then nobody knows.
func outdated(ctx context.Context, o options) (tally, error) {
	all, err := modulesOf(ctx, ".")
	if err != nil {
		return tally{}, err
	}
	locks, err := output(ctx, "git", "ls-files", "*package-lock.json")
	if err != nil {
		return tally{}, err
	}
	for lock := range strings.FieldsSeq(locks) {
		ps, err := packagesOf(ctx, ".", path.Dir(lock))
		if err != nil {
			return tally{}, err
		}
		all = append(all, ps...)
	}
	return tally{}, printOutdated(o.out, all)
}

// registryTime bounds the questions about one file.
const registryTime = 3 * time.Minute

// modulesOf asks about the modules that the go.mod of a directory requires directly.
func modulesOf(ctx context.Context, dir string) ([]dependency, error) {
	ctx, cancel := context.WithTimeout(ctx, registryTime)
	defer cancel()
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	text, err := outputIn(ctx, dir, "go", "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return nil, err
	}
	args := []string{"list", "-e", "-m", "-u", "-json"}
	for _, r := range mod.Require {
		if !r.Indirect {
			args = append(args, r.Path)
		}
	}
	if len(args) == 5 {
		return nil, nil
	}
	text, err = outputIn(ctx, dir, "go", args...)
	if err != nil {
		return nil, err
	}
	var all []dependency
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var m struct {
			Path, Version, Deprecated string
			Retracted                 []string
			Update                    *struct{ Version string }
			Error                     *struct{ Err string }
		}
		if err := d.Decode(&m); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		one := dependency{where: "go.mod", name: m.Path, has: m.Version, latest: m.Version, lookedUpWith: "go"}
		if m.Update != nil {
			one.latest = m.Update.Version
		}
		if m.Deprecated != "" {
			one.note = "deprecated: " + firstLine(m.Deprecated)
		}
		if len(m.Retracted) > 0 {
			one.note = "retracted: " + firstLine(m.Retracted[0])
		}
		if m.Error != nil {
			one.unanswered = firstLine(m.Error.Err)
		}
		all = append(all, one)
	}
}

// packagesOf asks about the packages that the package.json of a directory below root names. What it
// has is what the lock file says: nothing needs to be installed.
func packagesOf(ctx context.Context, root, dir string) ([]dependency, error) {
	ctx, cancel := context.WithTimeout(ctx, registryTime)
	defer cancel()
	at := filepath.Join(root, filepath.FromSlash(dir))
	text, err := os.ReadFile(filepath.Join(at, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version                                             string
			Dependencies, DevDependencies, OptionalDependencies map[string]string
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("%s/package-lock.json: %w", dir, err)
	}
	var all []dependency
	top := lock.Packages[""]
	for _, names := range []map[string]string{top.Dependencies, top.DevDependencies, top.OptionalDependencies} {
		for name := range names {
			has := lock.Packages["node_modules/"+name].Version
			all = append(all, dependency{where: dir, name: name, has: has, latest: has, lookedUpWith: "npm"})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	answer, failed := outputIn(ctx, at, "npm", "outdated", "--json", "--fetch-retries=0", "--loglevel=error", "--logs-max=0", "--no-update-notifier")
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) { // it also fails if something is outdated
		return nil, failed
	}
	// Besides packages there may be an error, whose code is a text.
	var found map[string]json.RawMessage
	if err := json.Unmarshal([]byte(answer), &found); err != nil && strings.TrimSpace(answer) != "" {
		return nil, fmt.Errorf("npm outdated in %s: %w: %s", dir, err, answer)
	}
	var why struct{ Code, Summary string }
	if json.Unmarshal(found["error"], &why) == nil && why.Code != "" {
		for i := range all {
			all[i].unanswered = firstLine(cmp.Or(why.Summary, why.Code))
		}
		return all, nil
	}
	if len(found) == 0 && failed != nil {
		return nil, fmt.Errorf("npm outdated in %s: %w", dir, failed)
	}
	for i := range all {
		var p struct{ Latest string }
		if json.Unmarshal(found[all[i].name], &p) == nil && p.Latest != "" {
			all[i].latest = p.Latest
		}
	}
	return all, nil
}

// printOutdated prints a table of what is outdated. The error says which registries did not answer.
func printOutdated(w io.Writer, all []dependency) error {
	slices.SortFunc(all, func(a, b dependency) int {
		return cmp.Or(cmp.Compare(a.where, b.where), cmp.Compare(a.name, b.name))
	})
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "WHERE\tNAME\tHAS\tLATEST\t")
	behind, unknown := 0, map[string][]dependency{}
	for _, d := range all {
		switch {
		case d.unanswered != "":
			unknown[d.lookedUpWith] = append(unknown[d.lookedUpWith], d)
		case d.has != d.latest || d.note != "":
			behind++
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", d.where, d.name, d.has, d.latest, d.note)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d direct dependencies are not the latest version, or are deprecated or retracted\n", behind, len(all))
	var errs []error
	for _, tool := range []string{"go", "npm"} {
		if ds := unknown[tool]; len(ds) > 0 {
			errs = append(errs, fmt.Errorf("NOBODY KNOWS about %d of them: the registry of %s did not answer: %s: %s", len(ds), tool, ds[0].name, ds[0].unanswered))
		}
	}
	return errors.Join(errs...)
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}
