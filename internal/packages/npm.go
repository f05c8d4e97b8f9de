package packages

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npm"
)

// The limits of what a registry may send.
const (
	maxDocument  = 64 << 20
	maxDocuments = 256 << 20 // for one installation
)

// allowedJS is the set of packages that may be installed for JavaScript.
type allowedJS struct {
	any  bool
	list []npm.Requirement
}

// allowedJS reads the list. Check has already reported errors in it.
func (s *Sources) allowedJS() (a allowedJS) {
	for _, text := range s.Allow[executor.JavaScript] {
		if r, err := npm.Parse(text); err == nil {
			a.list = append(a.list, r)
		}
		a.any = a.any || text == everything
	}
	return a
}

// parseJS reads requirements and sorts them.
func parseJS(names []string) ([]npm.Requirement, error) { return inOrder(names, npm.Parse) }

// admit returns why r may not be installed, or nil.
func (a allowedJS) admit(r npm.Requirement) error {
	listed := a.any
	for _, l := range a.list {
		if l.Name != r.Name {
			continue
		}
		listed = true
		if v, exact := r.Range.Exact(); exact && l.Range.String() != "" && !l.Range.Allows(v) {
			return fmt.Errorf("package %s: version %s is not allowed by this backend, which wants %s (packages.allow)", r.Name, v, l.Range)
		}
	}
	if !listed {
		return fmt.Errorf("package %s is not on the list of this backend (packages.allow)", r.Name)
	}
	return nil
}

// limits returns the versions that the list allows, which also apply to dependencies.
func (a allowedJS) limits() (texts []string) {
	for _, l := range a.list {
		if l.Range.String() != "" {
			texts = append(texts, l.String())
		}
	}
	slices.Sort(texts)
	return texts
}

// fetchJS returns the Fetch for what a session with some packages needs in addition, or nil if
// nothing is missing.
func (i *Installer) fetchJS(rs []npm.Requirement, have []installed) *Fetch {
	f := &Fetch{Language: executor.JavaScript, Registry: i.sources.Registry, Constraints: i.allowed.js.limits(), Max: i.sources.Bytes()}
	for _, r := range rs {
		has := func(h installed) bool {
			v, err := npm.ParseVersion(h.version)
			return h.name == r.Name && err == nil && (r.Range.String() == "" || r.Range.Allows(v))
		}
		if !slices.ContainsFunc(have, has) {
			f.Requirements = append(f.Requirements, r.String())
		}
	}
	if len(f.Requirements) == 0 {
		return nil
	}
	for _, h := range have {
		f.Have = append(f.Have, [2]string{h.name, h.version})
	}
	slices.SortFunc(f.Have, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return f
}

// converseJS makes a builder download the packages for f. This function decides which packages that
// are, from the documents of the registry.
func converseJS(ctx context.Context, f *Fetch, ask map[string]any, conn io.Writer, r *bufio.Reader) error {
	ask["registry"], ask["insecure"] = f.Registry, f.Insecure
	if err := say(conn, ask); err != nil {
		return err
	}
	q := npm.Question{Have: map[string]string{}, Platform: npm.Platform{OS: "linux"}, Insecure: f.Insecure}
	if err := hear(r, &q.Platform); err != nil {
		return err
	}
	var err error
	if q.Want, err = parseJS(f.Requirements); err != nil {
		return err
	}
	if q.Limit, err = parseJS(f.Constraints); err != nil {
		return err
	}
	for _, h := range f.Have {
		q.Have[h[0]] = h[1]
	}
	left := int64(maxDocuments)
	q.Get = func(_ context.Context, names []string) (map[string]*npm.Document, error) {
		if err := say(conn, map[string]any{"documents": names}); err != nil {
			return nil, err
		}
		return f.documents(r, &left)
	}
	found, err := npm.Resolve(ctx, q)
	if problem := (*npm.Problem)(nil); errors.As(err, &problem) {
		return &packageError{bounded(problem.Text)}
	}
	if err != nil {
		return err
	}
	archives, names, notes := [][5]string{}, [][2]string{}, []string{}
	for _, p := range found {
		title := p.Name + " " + p.Version
		archives = append(archives, [5]string{title, p.URL, p.Hash, p.Sum, p.Path})
		names = append(names, [2]string{p.Name, p.Version})
		if p.Scripts {
			notes = append(notes, title+" wants to run a program when it is installed, which it may not")
		}
	}
	slices.SortFunc(names, func(a, b [2]string) int { return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1]) })
	return say(conn, map[string]any{"archives": archives, "packages": slices.Compact(names), "notes": notes})
}

// documents reads the documents that a builder has downloaded from the registry.
func (f *Fetch) documents(r *bufio.Reader, left *int64) (map[string]*npm.Document, error) {
	var said struct {
		Kind, Error string
		Documents   []sized
	}
	if err := hear(r, &said); err != nil {
		return nil, err
	}
	if said.Kind != "" || said.Error != "" {
		return nil, f.explain(fetched{Kind: said.Kind, Error: said.Error})
	}
	docs := map[string]*npm.Document{}
	for _, d := range said.Documents {
		if *left -= d.size; d.size < 0 || d.size > maxDocument || *left < 0 {
			return nil, &packageError{"the registry says more of the packages than can be read"}
		}
		b := make([]byte, d.size)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, cut(err)
		}
		doc, err := npm.ParseDocument(b)
		if err != nil {
			return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("fetching packages: what the registry says of %.100q is %w", d.name, err))
		}
		docs[d.name] = doc
	}
	return docs, nil
}

// sized announces a document: [name, size].
type sized struct {
	name string
	size int64
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *sized) UnmarshalJSON(raw []byte) error {
	v := []any{&s.name, &s.size}
	return json.Unmarshal(raw, &v)
}

// say writes a line.
func say(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

// hear reads a line.
func hear(r *bufio.Reader, v any) error {
	line, err := readLine(r, maxHead)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
