package npm

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Document is a registry's description of all versions of a package, in the abbreviated or the full
// form.
type Document struct {
	Tags     map[string]string          `json:"dist-tags"`
	Versions map[string]json.RawMessage `json:"versions"` // decoded only when a version is chosen, because others may be invalid
}

// ParseDocument reads a document.
func ParseDocument(b []byte) (*Document, error) {
	d := &Document{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("not a document of a registry: %w", err)
	}
	return d, nil
}

// manifest has the parts of a manifest that decide about the use of a version.
type manifest struct {
	Dependencies map[string]string                  `json:"dependencies"`
	Optional     map[string]string                  `json:"optionalDependencies"`
	Peers        map[string]string                  `json:"peerDependencies"`
	PeersMeta    map[string]struct{ Optional bool } `json:"peerDependenciesMeta"`
	Bundled      bundled                            `json:"bundleDependencies"`
	BundledToo   bundled                            `json:"bundledDependencies"`
	OS           list                               `json:"os"`
	CPU          list                               `json:"cpu"`
	LibC         list                               `json:"libc"`
	Scripts      bool                               `json:"hasInstallScript"`
	// Shasum is a SHA-1. It is named in errors but not used.
	Dist struct{ Tarball, Integrity, Shasum string }
}

// list is one string or several.
type list []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *list) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*l = make(list, 1)
		return json.Unmarshal(b, &(*l)[0])
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// bundled names the dependencies that an archive contains, or says that it contains all.
type bundled struct {
	all   bool
	names []string
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *bundled) UnmarshalJSON(b []byte) error {
	if string(b) == "true" || string(b) == "false" {
		l.all = string(b) == "true"
		return nil
	}
	return json.Unmarshal(b, &l.names)
}

func (m *manifest) bundles(name string) bool {
	return m.Bundled.all || m.BundledToo.all || slices.Contains(m.Bundled.names, name) || slices.Contains(m.BundledToo.names, name)
}

// Platform is the platform that packages are chosen for, in Node's terms: "linux", "x64", "glibc".
type Platform struct{ OS, CPU, LibC string }

// fits reports whether a version is for the platform. A list names acceptable values or, with "!",
// unacceptable ones.
func (m *manifest) fits(p Platform) bool {
	fits := func(l list, is string) bool {
		if is == "" || len(l) == 0 || len(l) == 1 && l[0] == "any" {
			return true
		}
		no := slices.ContainsFunc(l, func(s string) bool { return strings.HasPrefix(s, "!") })
		return !slices.Contains(l, "!"+is) && (no || slices.Contains(l, is))
	}
	return fits(m.OS, p.OS) && fits(m.CPU, p.CPU) && fits(m.LibC, p.LibC)
}

// archive returns the address and the checksum of the archive of a version, after checking them.
func (m *manifest) archive(insecure bool) (address, hash, sum string, err error) {
	u, err := url.Parse(m.Dist.Tarball)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return "", "", "", fmt.Errorf("the registry says that its archive is at %.100q, which is no address", m.Dist.Tarball)
	case u.Scheme == "http" && !insecure:
		return "", "", "", errors.New("the registry says that its archive is at an address of http, by which anybody on the way can exchange it")
	}
	hash, sum, err = m.integrity()
	return u.String(), hash, sum, err
}

// hashes are the checksum algorithms, in order of preference, with their sizes. SHA-1 is not
// included: collisions can be produced at a moderate cost, so it does not prove which archive was
// published.
var hashes = []struct {
	name string
	size int
}{{"sha512", 64}, {"sha384", 48}, {"sha256", 32}}

func (m *manifest) integrity() (hash, sum string, err error) {
	for _, h := range hashes {
		for token := range strings.FieldsSeq(m.Dist.Integrity) {
			text, ok := strings.CutPrefix(token, h.name+"-")
			if !ok {
				continue
			}
			text, _, _ = strings.Cut(text, "?")
			if b, err := base64.StdEncoding.DecodeString(text); err == nil && len(b) == h.size {
				return h.name, hex.EncodeToString(b), nil
			}
			return "", "", errors.New("the checksum that the registry has of it cannot be read")
		}
	}
	if m.Dist.Shasum != "" || m.Dist.Integrity != "" {
		return "", "", errors.New("the registry has no checksum of it but one of SHA-1, by which an archive can be exchanged; " +
			"ask for another version, or serve it from a registry that has sha512")
	}
	return "", "", errors.New("the registry has no checksum of it")
}
