package driver

import "github.com/execbroker/execbroker/executor"

// Packages is what the configuration of an adapter says about packages: what sessions may install
// and where it comes from. The zero value means that they may install nothing. The adapter says
// what fetches them; sessions need no network for it.
type Packages struct {
	// Allow lists what may be asked for, by language: "numpy", "pandas>=2,<3", "uvicorn[standard]"
	// for Python, "lodash", "@scope/name@^2" for JavaScript, or "*" for everything that there is.
	// What they depend on comes along. Versions bound all that is installed. A language that has no
	// list declares no packages.
	Allow map[executor.Language][]string `json:"allow,omitempty"`
	// Requirements is a file of pip's with further lines for Python: names with versions, and
	// comments.
	Requirements string `json:"requirements,omitempty"`

	// IndexURL is the address of an index (PEP 503), FindLinks are pages with links to wheels, as
	// what fetches reaches them. Empty: what the pip of the image or template uses.
	IndexURL  string   `json:"index_url,omitempty"`
	FindLinks []string `json:"find_links,omitempty"`
	// Registry is the address of a registry of npm packages, for JavaScript. It has no default: the
	// image or template need not have an npm to ask.
	Registry string `json:"registry,omitempty"`
	// Insecure allows http, by which anybody on the way can exchange packages.
	Insecure bool `json:"insecure,omitempty"`
	// Wheels is a directory with wheels. Without IndexURL and FindLinks nothing else is looked at,
	// and nothing has a network.
	Wheels string `json:"wheels,omitempty"`

	// Size is the most that one installation may take, unpacked. Default: 256 MiB.
	Size Size `json:"size,omitempty"`
}
