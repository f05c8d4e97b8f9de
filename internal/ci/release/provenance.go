package release

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// The names of the files that are about all others.
const (
	provenanceFile = "provenance.intoto.json"
	sumsFile       = "SHA256SUMS"
)

// The repository, and what names in the provenance the way in which files are made and who makes
// them.
const (
	repository    = "https://github.com/execbroker/execbroker"
	buildType     = repository + "/blob/main/docs/guides/install.md#build-it-yourself"
	predicateType = "https://slsa.dev/provenance/v1"
)

// A material is something that a release is made from.
type material struct {
	uri    string
	digest map[string]string
}

// provenance writes which files were made, from what, and by what. It has no times and no name of a
// machine, so that everybody who makes the release again makes the same.
func (m *maker) provenance() error {
	digests, err := digestsOf(m.out)
	if err != nil {
		return err
	}
	text, err := m.statement(digests)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.out, provenanceFile), text, 0o644)
}

func (m *maker) statement(digests map[string]string) ([]byte, error) {
	list := make([]any, len(m.targets))
	for i, t := range m.targets {
		list[i] = t
	}
	parameters, err := structpb.NewStruct(map[string]any{"version": m.version, "targets": list, "modified": len(m.source.changed) > 0})
	if err != nil {
		return nil, err
	}
	p := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType:          buildType,
			ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{
				Uri:    "git+" + repository + "@" + m.source.commit,
				Digest: map[string]string{"gitCommit": m.source.commit},
			}},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{
			Id:      repository + "/tree/main/internal/ci/release",
			Version: map[string]string{"go": runtime.Version(), "nfpm": version(nfpm), "cyclonedx-gomod": version(cyclonedx)},
		}},
	}
	slices.SortFunc(m.from, func(a, b material) int { return cmp.Compare(a.uri, b.uri) })
	m.from = slices.CompactFunc(m.from, func(a, b material) bool { return a.uri == b.uri })
	for _, f := range m.from {
		p.BuildDefinition.ResolvedDependencies = append(p.BuildDefinition.ResolvedDependencies, &intoto.ResourceDescriptor{Uri: f.uri, Digest: f.digest})
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": digests[name]}})
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	predicate, err := protojson.Marshal(p)
	if err != nil {
		return nil, err
	}
	s.Predicate = &structpb.Struct{}
	if err := protojson.Unmarshal(predicate, s.Predicate); err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(s)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil { // protojson varies its spaces on purpose
		return nil, err
	}
	return append(b.Bytes(), '\n'), nil
}

// version returns what is after the @.
func version(tool string) string {
	_, v, _ := strings.Cut(tool, "@")
	return v
}

// sums writes the checksums of all files, in the form of sha256sum.
func (m *maker) sums() error {
	digests, err := digestsOf(m.out)
	if err != nil {
		return err
	}
	return create(filepath.Join(m.out, sumsFile), func(w io.Writer) error {
		for _, name := range slices.Sorted(maps.Keys(digests)) {
			if _, err := fmt.Fprintf(w, "%s  %s\n", digests[name], name); err != nil {
				return err
			}
		}
		return nil
	})
}

// digestsOf returns the SHA-256 of each file in a directory, in hexadecimal.
func digestsOf(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		digests[e.Name()] = hex.EncodeToString(h.Sum(nil))
	}
	return digests, nil
}
