package wheels

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// distribution matches the address of the packages in an installed Pyodide, with a placeholder for
// the version.
var distribution = regexp.MustCompile("https://[^\\s\"'`<>{}]{1,200}/v\\$\\{[A-Za-z_$][A-Za-z0-9_$]*\\}/full/")

// DistributionURL returns the address from which an installed Pyodide would load its packages. It
// reads it from the package, so that both always belong together.
func DistributionURL(pyodideDir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(pyodideDir, "package.json"))
	if err != nil {
		return "", err
	}
	var p struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("package.json of pyodide: %w", err)
	}
	code, err := os.ReadFile(filepath.Join(pyodideDir, "pyodide.mjs"))
	if err != nil {
		return "", err
	}
	found := distribution.Find(code)
	if found == nil || p.Version == "" {
		return "", errors.New("pyodide.mjs does not say where its packages are; set the address in the configuration")
	}
	before, rest, _ := strings.Cut(string(found), "${")
	_, after, _ := strings.Cut(rest, "}")
	return before + p.Version + after, nil
}
