package npm

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is a version. The build metadata after "+" is ignored and not kept.
type Version struct {
	numbers [3]uint64
	pre     []string // identifiers of a pre-release
}

// maxNumber is the largest number in a version: JavaScript's largest exact integer.
const maxNumber = 1<<53 - 1

var (
	versionForm = regexp.MustCompile(`^v?(\d{1,16})\.(\d{1,16})\.(\d{1,16})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)
	partialForm = regexp.MustCompile(`^(\^|~>?|[<>]=?|=)?v?(\d{1,16}|[xX*])(?:\.(\d{1,16}|[xX*])(?:\.(\d{1,16}|[xX*])(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?)?)?$`)
	operators   = regexp.MustCompile(`(\^|~>?|[<>]=?|=)\s+`)
	hyphen      = regexp.MustCompile(`^(\S+)\s+-\s+(\S+)$`)
)

// ParseVersion reads a version such as "1.2.3" or "2.0.0-beta.1".
func ParseVersion(text string) (Version, error) {
	m := versionForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil || len(text) > maxRange {
		return Version{}, fmt.Errorf("%.60q is not a version", text)
	}
	var v Version
	for i := range v.numbers {
		n, err := number(m[i+1])
		if err != nil {
			return Version{}, err
		}
		v.numbers[i] = n
	}
	var err error
	v.pre, err = preRelease(m[4])
	return v, err
}

func number(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxNumber || len(text) > 1 && text[0] == '0' {
		return 0, fmt.Errorf("%.60q is no number of a version", text)
	}
	return n, nil
}

func preRelease(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	ids := strings.Split(text, ".")
	for _, id := range ids {
		if id == "" || len(id) > 1 && id[0] == '0' && isNumber(id) {
			return nil, fmt.Errorf("%.60q is not a pre-release", text)
		}
	}
	return ids, nil
}

func isNumber(id string) bool { return strings.Trim(id, "0123456789") == "" }

// Compare orders versions by precedence. A pre-release comes before its release.
func (v Version) Compare(w Version) int {
	if c := slices.Compare(v.numbers[:], w.numbers[:]); c != 0 {
		return c
	}
	switch {
	case len(v.pre) == 0 || len(w.pre) == 0:
		return cmp.Compare(len(w.pre), len(v.pre)) // a version without pre-release is later
	}
	return slices.CompareFunc(v.pre, w.pre, func(a, b string) int {
		an, bn := isNumber(a), isNumber(b)
		switch {
		case an && bn:
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		case an:
			return -1
		case bn:
			return 1
		}
		return cmp.Compare(a, b)
	})
}

// String formats v as registries do.
func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.numbers[0], v.numbers[1], v.numbers[2])
	if len(v.pre) > 0 {
		s += "-" + strings.Join(v.pre, ".")
	}
	return s
}

// Range is a set of versions. The zero value contains all versions except pre-releases.
type Range struct {
	text string
	sets [][]bound // one of these must be satisfied
}

// bound is one end of a range.
type bound struct {
	op string // "<", "<=", ">", ">=", "="
	v  Version
}

// ParseRange reads a range in npm's syntax: "^1.2", "~1.2.3", "1.x", ">=1 <3", "1 - 2", "1.0.0 ||
// ^2".
func ParseRange(text string) (Range, error) {
	r := Range{text: strings.Join(strings.Fields(text), " ")}
	if len(text) > maxRange {
		return Range{}, errors.New("its versions are too long")
	}
	if r.text == "" || r.text == "*" {
		return Range{}, nil
	}
	for part := range strings.SplitSeq(r.text, "||") {
		set, err := parseSet(strings.TrimSpace(part))
		if err != nil {
			return Range{}, err
		}
		r.sets = append(r.sets, set)
	}
	return r, nil
}

func parseSet(text string) (set []bound, err error) {
	if m := hyphen.FindStringSubmatch(text); m != nil {
		from, err := parsePartial(m[1])
		if err != nil || from.op != "" {
			return nil, notRange(text)
		}
		to, err := parsePartial(m[2])
		if err != nil || to.op != "" {
			return nil, notRange(text)
		}
		from.op, to.op = ">=", "<="
		return append(from.bounds(), to.bounds()...), nil
	}
	for c := range strings.FieldsSeq(operators.ReplaceAllString(text, "$1")) {
		p, err := parsePartial(c)
		if err != nil {
			return nil, err
		}
		set = append(set, p.bounds()...)
	}
	return set, nil
}

func notRange(text string) error {
	return fmt.Errorf(`%.60q is not a version; write for example "1.2.3", "^1.2" or ">=1 <3"`, text)
}

// partial is a version of which only the first n numbers are known.
type partial struct {
	op string
	n  int
	v  Version
}

func parsePartial(text string) (p partial, err error) {
	m := partialForm.FindStringSubmatch(text)
	if m == nil {
		return p, notRange(text)
	}
	p.op = strings.TrimSuffix(m[1], "=")
	if strings.HasSuffix(m[1], "=") && m[1] != "=" {
		p.op = m[1]
	}
	if p.op == "~>" {
		p.op = "~"
	}
	for ; p.n < 3 && m[p.n+2] != "" && !strings.Contains("xX*", m[p.n+2]); p.n++ {
		if p.v.numbers[p.n], err = number(m[p.n+2]); err != nil {
			return p, err
		}
	}
	if p.n == 3 {
		p.v.pre, err = preRelease(m[5])
	}
	return p, err
}

// next returns the first version, including pre-releases, after all versions that share the first n
// numbers with p.
func (p partial) next(n int) Version {
	v := Version{pre: []string{"0"}}
	copy(v.numbers[:n], p.v.numbers[:n])
	v.numbers[n-1]++
	return v
}

// first returns p with zeros for unknown numbers, and with its pre-release.
func (p partial) first() Version {
	v := p.v
	v.pre = []string{"0"}
	return v
}

// nothing is a range without versions.
var nothing = []bound{{"<", Version{pre: []string{"0"}}}}

func (p partial) bounds() []bound {
	if p.n == 0 {
		if p.op == "<" || p.op == ">" {
			return nothing
		}
		return nil
	}
	from := bound{">=", p.v}
	switch p.op {
	case "^":
		n := 1 // how many numbers are fixed: up to the first that is not zero
		for n < p.n && p.v.numbers[n-1] == 0 {
			n++
		}
		return []bound{from, {"<", p.next(n)}}
	case "~":
		return []bound{from, {"<", p.next(min(p.n, 2))}}
	case "":
		if p.n == 3 {
			return []bound{{"=", p.v}}
		}
		return []bound{from, {"<", p.next(p.n)}}
	case ">":
		if p.n < 3 {
			v := p.next(p.n)
			v.pre = nil
			return []bound{{">=", v}}
		}
	case "<":
		if p.n < 3 {
			return []bound{{"<", p.first()}}
		}
	case "<=":
		if p.n < 3 {
			return []bound{{"<", p.next(p.n)}}
		}
	}
	return []bound{{p.op, p.v}}
}

// Allows reports whether v is in r. A pre-release is in r only if r names a pre-release of the same
// version.
func (r Range) Allows(v Version) bool {
	if len(r.sets) == 0 {
		return len(v.pre) == 0
	}
	return slices.ContainsFunc(r.sets, func(set []bound) bool {
		named := len(v.pre) == 0
		for _, b := range set {
			if !b.allows(v) {
				return false
			}
			named = named || len(b.v.pre) > 0 && b.v.numbers == v.numbers
		}
		return named
	})
}

func (b bound) allows(v Version) bool {
	c := v.Compare(b.v)
	switch b.op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	return c == 0
}

// Exact returns the only version that r allows, if r is written as one version.
func (r Range) Exact() (Version, bool) {
	if len(r.sets) == 1 && len(r.sets[0]) == 1 && r.sets[0][0].op == "=" {
		return r.sets[0][0].v, true
	}
	return Version{}, false
}

// String returns the text of r without unnecessary spaces. The range of all versions is "".
func (r Range) String() string { return r.text }
