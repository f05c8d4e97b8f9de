package release

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageName is the name that the image has in an engine that has loaded it. Where names are written
// in full, as on nodes of a cluster, it is fullImageName; the chart has that too.
const (
	imageName     = "execbroker"
	fullImageName = "docker.io/library/" + imageName
)

// imageUser is who runs in the image. The number is that of "nonroot" in other images.
const imageUser = 65532

// triplets are Debian's names of architectures in paths, and of the loader of programs.
var triplets = map[string]struct{ libraries, loader string }{
	"amd64": {"x86_64-linux-gnu", "ld-linux-x86-64.so.2"},
	"arm64": {"aarch64-linux-gnu", "ld-linux-aarch64.so.1"},
}

// libraries are what Deno is linked with.
var libraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1"}

// image makes an image from nothing: the C library, the Pyodide runtime and the program, each a
// layer, so that a new version of the program is a new layer only. The file is an image layout of
// OCI in a tar, with the index that Docker reads too.
func (m *maker) image(ctx context.Context, arch string) error {
	base, err := m.base(ctx, arch)
	if err != nil {
		return err
	}
	run, program := nodes{}, nodes{}
	if err := run.addTree(m.runtimeDir(arch), ""); err != nil {
		return err
	}
	config, err := files.ReadFile("files/execbroker.yaml")
	if err != nil {
		return err
	}
	copyright, err := files.ReadFile("files/copyright")
	if err != nil {
		return err
	}
	program["usr/bin/execbroker"] = node{from: m.program("linux/" + arch), mode: 0o755}
	program["etc/execbroker/execbroker.yaml"] = node{text: string(config), mode: 0o644}
	program["usr/share/doc/execbroker/copyright"] = node{text: string(copyright), mode: 0o644}

	blobs := nodes{} // of the layout
	image := oci.Image{
		Created:  &m.source.date,
		Platform: oci.Platform{Architecture: arch, OS: "linux"},
		Config: oci.ImageConfig{
			User:         fmt.Sprintf("%d:%d", imageUser, imageUser),
			Env:          []string{"PATH=/usr/bin", "HOME=/var/lib/execbroker", "XDG_CACHE_HOME=/var/cache", "USER=execbroker"},
			Entrypoint:   []string{"/usr/bin/execbroker"},
			Cmd:          []string{"--help"},
			WorkingDir:   "/var/lib/execbroker",
			ExposedPorts: map[string]struct{}{"3000/tcp": {}},
			Labels: map[string]string{
				oci.AnnotationTitle: "execbroker", oci.AnnotationSource: repository, oci.AnnotationLicenses: "Apache-2.0",
				oci.AnnotationVersion: m.version, oci.AnnotationRevision: m.source.commit,
			},
		},
		RootFS: oci.RootFS{Type: "layers"},
	}
	manifest := oci.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageManifest}
	for i, all := range []nodes{base, run, program} {
		file := filepath.Join(m.work, fmt.Sprintf("layer-%s-%d", arch, i))
		layer, content, err := m.layer(file, all)
		if err != nil {
			return err
		}
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, content)
		manifest.Layers = append(manifest.Layers, layer)
		blobs[blobPath(layer)] = node{from: file, mode: 0o644}
	}
	put := func(mediaType string, value any) (oci.Descriptor, error) {
		text, err := json.Marshal(value)
		d := oci.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
		blobs[blobPath(d)] = node{text: string(text), mode: 0o644}
		return d, err
	}
	if manifest.Config, err = put(oci.MediaTypeImageConfig, image); err != nil {
		return err
	}
	top, err := put(oci.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	tag := imageTag(m.version)
	top.Platform = &image.Platform
	top.Annotations = map[string]string{"io.containerd.image.name": fullImageName + ":" + tag, oci.AnnotationRefName: tag}
	index := oci.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageIndex, Manifests: []oci.Descriptor{top}}
	for name, value := range map[string]any{
		oci.ImageLayoutFile: oci.ImageLayout{Version: oci.ImageLayoutVersion},
		oci.ImageIndexFile:  index,
		"manifest.json":     dockerIndex(manifest, tag),
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		blobs[name] = node{text: string(text), mode: 0o644}
	}
	return create(m.file("linux/"+arch, ".oci.tar"), func(w io.Writer) error { return writeTar(w, blobs, m.source.date) })
}

func blobPath(d oci.Descriptor) string { return path.Join("blobs", "sha256", d.Digest.Encoded()) }

// dockerIndex is what engines read that do not know the layout of OCI.
func dockerIndex(m oci.Manifest, tag string) any {
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	e := entry{Config: blobPath(m.Config), RepoTags: []string{imageName + ":" + tag}}
	for _, l := range m.Layers {
		e.Layers = append(e.Layers, blobPath(l))
	}
	return []entry{e}
}

// imageTag is a version as a tag, in which a plus sign is not allowed.
func imageTag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// layer writes a layer, and returns its description and the digest of its content without
// compression.
func (m *maker) layer(file string, all nodes) (d oci.Descriptor, content digest.Digest, err error) {
	plain, packed := sha256.New(), sha256.New()
	var size counter
	err = create(file, func(w io.Writer) error {
		return writeTarGz(io.MultiWriter(w, packed, &size), all, m.source.date)
	})
	if err == nil {
		err = writeTar(plain, all, m.source.date)
	}
	d = oci.Descriptor{MediaType: oci.MediaTypeImageLayerGzip, Digest: digest.NewDigest(digest.SHA256, packed), Size: int64(size)}
	return d, digest.NewDigest(digest.SHA256, plain), err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// base returns the files that programs find on every system: the C library and certificates of
// Debian, users, and directories that can be written to.
func (m *maker) base(ctx context.Context, arch string) (nodes, error) {
	if m.extract == nil {
		return nil, errors.New("nothing unpacks packages of Debian on this machine")
	}
	dir := filepath.Join(m.work, "base", arch)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	packages := []string{"libc6", "libgcc-s1", "ca-certificates"}
	if err := m.extract(ctx, arch, dir, packages...); err != nil {
		return nil, err
	}
	for _, name := range packages {
		version, err := debianVersion(dir, name)
		if err != nil {
			return nil, err
		}
		m.from = append(m.from, material{uri: fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, url.QueryEscape(version), arch)})
	}
	all := nodes{
		"bin": {link: "usr/bin"}, "lib": {link: "usr/lib"}, "lib64": {link: "usr/lib64"},
		"etc/passwd":           {text: fmt.Sprintf("root:x:0:0:root:/:/nologin\nexecbroker:x:%[1]d:%[1]d:execbroker:/var/lib/execbroker:/nologin\n", imageUser), mode: 0o644},
		"etc/group":            {text: fmt.Sprintf("root:x:0:\nexecbroker:x:%d:\n", imageUser), mode: 0o644},
		"tmp":                  {mode: fs.ModeDir | fs.ModeSticky | 0o777},
		"dev":                  {mode: fs.ModeDir | 0o755},
		"proc":                 {mode: fs.ModeDir | 0o755},
		"sys":                  {mode: fs.ModeDir | 0o755},
		"var/lib/execbroker":   {mode: fs.ModeDir | 0o755, user: imageUser},
		"var/cache/execbroker": {mode: fs.ModeDir | fs.ModeSticky | 0o777, user: imageUser}, // for any user
	}
	var err error
	t := triplets[arch]
	for _, name := range libraries {
		if all["usr/lib/"+t.libraries+"/"+name], err = fileIn(dir, "usr/lib/"+t.libraries+"/"+name, 0o644); err != nil {
			return nil, err
		}
	}
	// Programs name the loader by one of two directories, depending on the architecture.
	loader, err := fileIn(dir, "usr/lib/"+t.libraries+"/"+t.loader, 0o755)
	if err != nil {
		return nil, err
	}
	all["usr/lib/"+t.loader], all["usr/lib64/"+t.loader] = loader, loader
	for _, name := range []string{"libc6", "libgcc-s1"} {
		if all["usr/share/doc/"+name+"/copyright"], err = fileIn(dir, "usr/share/doc/"+name+"/copyright", 0o644); err != nil {
			return nil, err
		}
	}
	certificates, err := filepath.Glob(filepath.Join(dir, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(certificates)
	var bundle strings.Builder
	for _, name := range certificates {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		bundle.Write(text)
	}
	if len(certificates) < 50 {
		return nil, fmt.Errorf("ca-certificates: got %d certificates", len(certificates))
	}
	all["etc/ssl/certs/ca-certificates.crt"] = node{text: bundle.String(), mode: 0o644}
	return all, nil
}

// changelogHead is the first line of the changelog of a package of Debian.
var changelogHead = regexp.MustCompile(`^\S+ \(([^)]+)\) `)

// debianVersion returns the version of a package that was unpacked into dir.
func debianVersion(dir, name string) (string, error) {
	doc := filepath.Join(dir, "usr/share/doc", name)
	for _, file := range []string{"changelog.Debian.gz", "changelog.gz"} {
		f, err := os.Open(filepath.Join(doc, file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.Name(), err)
		}
		head, err := bufio.NewReader(z).ReadString('\n')
		if m := changelogHead.FindStringSubmatch(head); m != nil {
			return m[1], nil
		}
		return "", fmt.Errorf("%s: %q: want a name and a version: %w", f.Name(), head, err)
	}
	return "", fmt.Errorf("%s: has no changelog", doc)
}

// fileIn returns the file of a name below dir, in which links are followed.
func fileIn(dir, name string, mode fs.FileMode) (node, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return node{}, err
	}
	if rel, err := filepath.Rel(dir, real); err != nil || !filepath.IsLocal(rel) {
		return node{}, fmt.Errorf("%s: leads to %s, outside of the packages", name, real)
	}
	return node{from: real, mode: mode}, nil
}
