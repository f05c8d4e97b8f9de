package kubetest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"runtime"
)

// ImageOf returns an image that has a static program for Linux at a path, and nothing else. Its
// containers run the program.
func ImageOf(name, at string, program []byte) Image {
	sum := sha256.Sum256(append([]byte(at+"\x00"), program...))
	return Image{Name: name, ID: hex.EncodeToString(sum[:]), Save: func(file string) error { return saveProgram(file, name, at, program) }}
}

// saveProgram writes the image of a program in the form of docker save.
func saveProgram(file, name, at string, program []byte) error {
	layer, err := archive(at, program, 0o755)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	config, cerr := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/" + at}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	manifest, merr := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err := errors.Join(cerr, merr); err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		text []byte
	}{{"config.json", config}, {"manifest.json", manifest}, {"layer.tar", layer}} {
		if err := add(w, f.name, f.text, 0o644); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// archive returns a tar of one file.
func archive(name string, text []byte, mode int64) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := add(w, name, text, mode); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

func add(w *tar.Writer, name string, text []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}
