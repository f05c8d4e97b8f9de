package npm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// maxPackages is the largest number of packages of one installation. The largest frameworks need
// half of it.
const maxPackages = 4000

// maxPath is the largest length of a directory name.
const maxPath = 2000

// Problem says why packages cannot be installed. It is about the packages, not about the
// infrastructure.
type Problem struct{ Text string }

// Error implements error.
func (p *Problem) Error() string { return p.Text }

func problem(format string, args ...any) error { return &Problem{fmt.Sprintf(format, args...)} }

// Question is the input of Resolve.
type Question struct {
	Want  []Requirement     // packages at the top level, where code finds them
	Limit []Requirement     // limits of the versions of all packages with these names
	Have  map[string]string // installed at the top level already: names and versions. They are not changed
	Platform
	Insecure bool // archives may have http URLs

	// Get returns the documents of packages. Packages that do not exist are left out.
	Get func(ctx context.Context, names []string) (map[string]*Document, error)
}

// Package is a package to install.
type Package struct {
	Path          string // below the topmost node_modules: "a", "a/node_modules/@scope/b"
	Name, Version string
	URL           string // URL of its archive
	Hash, Sum     string // "sha512" and the checksum in hexadecimal
	Scripts       bool   // it has install scripts
}

// node is a directory of a package. The root has no name.
type node struct {
	name     string // name of the directory, which may be an alias
	parent   *node
	children map[string]*node
	of       string // name of the package
	version  Version
	have     bool // installed already; its dependencies are not known
	optional bool // so are all its dependencies
	m        manifest
}

// edge is a dependency: a package or the user needs a package under a name.
type edge struct {
	from                   *node
	name                   string
	of                     string
	spec                   string
	versions               Range
	tag                    string
	optional, peer, unless bool // unless: only if something else needs it too
}

// Resolve decides where packages must be installed so that every package finds its dependencies: as
// far up as possible, and below the package that needs them if versions differ. A problem with the
// packages is a *Problem.
func Resolve(ctx context.Context, q Question) ([]Package, error) {
	r := &resolver{q: q, root: &node{children: map[string]*node{}}, docs: map[string]*Document{}}
	for name, v := range q.Have {
		version, err := ParseVersion(v)
		if err != nil || !validName(name) {
			continue // its version is not known
		}
		r.root.children[name] = &node{name: name, parent: r.root, of: name, version: version, have: true}
	}
	var wave []edge
	for _, w := range q.Want {
		wave = append(wave, edge{from: r.root, name: w.Name, of: w.Name, versions: w.Range})
	}
	for len(wave) > 0 {
		if err := r.load(ctx, wave); err != nil {
			return nil, err
		}
		r.next = nil
		for _, e := range wave {
			if err := r.follow(e); err != nil && !e.optional {
				return nil, err
			}
			if r.count > maxPackages {
				return nil, problem("more than %d packages would be needed", maxPackages)
			}
		}
		wave = r.next
	}
	return r.packages(r.root, "")
}

type resolver struct {
	q     Question
	root  *node
	docs  map[string]*Document // nil: does not exist
	next  []edge
	count int
}

// load gets the documents for edges, all at once.
func (r *resolver) load(ctx context.Context, wave []edge) error {
	var names []string
	for _, e := range wave {
		if _, ok := r.docs[e.of]; !ok && !e.unless && !slices.Contains(names, e.of) {
			if c := e.start().find(e.name); c == nil || !r.does(c, e) {
				names = append(names, e.of)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	docs, err := r.q.Get(ctx, names)
	if err != nil {
		return err
	}
	for _, n := range names {
		r.docs[n] = docs[n]
	}
	return nil
}

// start returns the node where the search for a dependency starts. A peer dependency must not be
// below the package itself.
func (e edge) start() *node {
	if e.peer {
		return e.from.parent
	}
	return e.from
}

// find returns the package that code in n finds under a name.
func (n *node) find(name string) *node {
	for ; n != nil; n = n.parent {
		if c := n.children[name]; c != nil {
			return c
		}
	}
	return nil
}

// does reports whether c satisfies e.
func (r *resolver) does(c *node, e edge) bool {
	if c.of != e.of {
		return false
	}
	if e.tag != "" {
		d := r.docs[e.of]
		return c.have || d != nil && d.Tags[e.tag] == c.version.String()
	}
	return e.versions.Allows(c.version) || e.versions.text == ""
}

// follow makes sure that a dependency is satisfied.
func (r *resolver) follow(e edge) error {
	start := e.start()
	c := start.find(e.name)
	switch {
	case c != nil && r.does(c, e):
		return nil
	case e.unless:
		return nil
	case c != nil && e.peer:
		return problem("%s needs %s@%s beside it, and %s is there", e.from.title(), e.name, e.spec, c.title())
	case c != nil && c.parent == start:
		if c.have {
			return problem("%s was asked for, and the session has %s already", e.title(), c.title())
		}
		return problem("%s was asked for, and %s is needed as well", e.title(), c.title())
	}
	d := r.docs[e.of]
	if d == nil {
		return problem("package %s is not in the registry%s", e.of, e.because())
	}
	version, m, err := r.choose(d, e)
	if err != nil {
		return err
	}
	if !m.fits(r.q.Platform) {
		return problem("%s %s is not for this machine (%s, %s, %s)%s", e.of, version, r.q.OS, r.q.CPU, r.q.LibC, e.because())
	}
	at := r.root
	if c != nil {
		at = start // another version here would hide the one above for all packages below
	}
	n := &node{name: e.name, parent: at, children: map[string]*node{}, of: e.of, version: version, optional: e.optional, m: m}
	at.children[e.name] = n
	r.count++
	return r.needs(n)
}

// choose returns a version: the one that its authors tag as latest if it is acceptable, otherwise
// the newest acceptable one.
func (r *resolver) choose(d *Document, e edge) (Version, manifest, error) {
	allowed := func(v Version) bool {
		limits := r.q.Limit
		if e.from == r.root {
			limits = append(slices.Clone(limits), r.q.Want...)
		}
		return !slices.ContainsFunc(limits, func(l Requirement) bool { return l.Name == e.of && l.Range.text != "" && !l.Range.Allows(v) })
	}
	var best *Version
	var raw json.RawMessage
	take := func(text string) bool {
		v, err := ParseVersion(text)
		if err != nil || d.Versions[text] == nil || !allowed(v) {
			return false
		}
		best, raw = &v, d.Versions[text]
		return true
	}
	preferred := cmp.Or(e.tag, "latest")
	if v, err := ParseVersion(d.Tags[preferred]); err == nil && (e.tag != "" || e.versions.text == "" || e.versions.Allows(v)) {
		take(d.Tags[preferred])
	}
	if best == nil && e.tag == "" {
		for text := range d.Versions {
			if v, err := ParseVersion(text); err == nil && e.versions.Allows(v) && (best == nil || v.Compare(*best) > 0) {
				take(text)
			}
		}
	}
	var m manifest
	if best == nil {
		return Version{}, m, problem("no version of %s will do%s: %s", e.title(), e.because(), d.newest())
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return *best, m, problem("%s %s: what the registry says of it cannot be read: %v", e.of, best, err)
	}
	return *best, m, nil
}

// newest lists the newest versions, for an error.
func (d *Document) newest() string {
	var all []Version
	for text := range d.Versions {
		if v, err := ParseVersion(text); err == nil {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Version) int { return b.Compare(a) })
	var texts []string
	for _, v := range all[:min(len(all), 5)] {
		texts = append(texts, v.String())
	}
	if len(texts) == 0 {
		return "the registry has none"
	}
	return "the newest are " + strings.Join(texts, ", ") + ", and the list of this backend may bound them"
}

var tagForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,60}$`)

// needs queues the dependencies of a package that was just placed.
func (r *resolver) needs(n *node) error {
	add := func(name, spec string, e edge) error {
		if n.m.bundles(name) {
			return nil
		}
		e.from, e.name, e.of, e.spec = n, name, name, spec
		e.optional = e.optional || n.optional
		rest, alias := strings.CutPrefix(spec, "npm:")
		if alias {
			e.of, rest = rest, ""
			if at := strings.LastIndexByte(e.of, '@'); at > 0 {
				e.of, rest = e.of[:at], e.of[at+1:]
			}
		}
		var err error
		if e.versions, err = ParseRange(rest); err != nil && tagForm.MatchString(rest) {
			e.tag, err = rest, nil
		}
		if err != nil || !validName(e.name) || !validName(e.of) {
			if e.optional || e.unless {
				return nil
			}
			return problem("%s depends on %.60q as %.100q; only packages of the registry are installed", n.title(), name, spec)
		}
		r.next = append(r.next, e)
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(n.m.Dependencies)) {
		if _, optional := n.m.Optional[name]; !optional { // it is also listed as optional
			if err := add(name, n.m.Dependencies[name], edge{}); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.m.Optional)) {
		if err := add(name, n.m.Optional[name], edge{optional: true}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.m.Peers)) {
		if err := add(name, n.m.Peers[name], edge{peer: true, unless: n.m.PeersMeta[name].Optional}); err != nil {
			return err
		}
	}
	return nil
}

// packages lists the packages to install below n.
func (r *resolver) packages(n *node, dir string) ([]Package, error) {
	var all []Package
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		c := n.children[name]
		if c.have {
			continue
		}
		p := Package{Path: dir + name, Name: c.of, Version: c.version.String(), Scripts: c.m.Scripts}
		if len(p.Path) > maxPath {
			return nil, problem("%s: packages that differ in versions only are needed below each other too deep", c.title())
		}
		var err error
		if p.URL, p.Hash, p.Sum, err = c.m.archive(r.q.Insecure); err != nil {
			return nil, problem("%s: %v", c.title(), err)
		}
		below, err := r.packages(c, p.Path+"/node_modules/")
		if err != nil {
			return nil, err
		}
		all = append(append(all, p), below...)
	}
	return all, nil
}

func (n *node) title() string { return n.of + " " + n.version.String() }

func (e edge) title() string {
	if version := cmp.Or(e.tag, e.versions.text); version != "" {
		return e.of + "@" + version
	}
	return e.of
}

// because says which package needs the one of an error.
func (e edge) because() string {
	if e.from.parent == nil {
		return ""
	}
	return fmt.Sprintf(" (%s depends on it)", e.from.title())
}
