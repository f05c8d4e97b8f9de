package executor

import "time"

// The defaults, the same on every backend.
const (
	DefaultWallTime      = 30 * time.Second // RunLimits.WallTime
	DefaultOutputBytes   = 16 << 20         // RunLimits.OutputBytes
	DefaultKeep          = 1 << 20          // Request.Keep
	DefaultArtifactBytes = 32 << 20         // ArtifactRequest.MaxBytes
	DefaultIdleTTL       = time.Hour        // Spec.IdleTTL
)

// ReservedPrefix begins the label keys that only this library may use.
const ReservedPrefix = "execbroker."

// Spec describes a session to create. The zero value means the first language of the backend, its
// default template, no network, and the default limits. No field has a meaning on one backend only.
//
// Labels, Attributes and Subject are three fields because they go to different destinations. Labels
// are stored at the provider, which often cannot change them later. If labels carried data for
// routing, a sandbox that was started ahead of time would never match. Attributes are for rules.
// Subject is for counting and for sending each user to the same backend. Attributes and Subject do
// not leave the process.
type Spec struct {
	// Template is a logical name, such as "data-science". The configuration of each backend maps it
	// to an image or template of its own. Empty means the default of the backend.
	Template string
	// Languages lists the languages of the runs. More than one requires FeatureMixedLanguages,
	// except JavaScript and TypeScript on a backend with FeatureTypeScript, where either name gives
	// both. The first one is the default of requests. None means the first language of the backend,
	// which may differ between backends.
	Languages []Language
	// Packages are installed before Create returns. They require FeaturePackages.
	Packages []Packages
	// Env is set in every run. It requires FeatureEnv for each of the languages. A name must not be
	// empty or contain "=" or NUL, and a value must not contain NUL.
	Env map[string]string
	// Aliases are other names of Workdir, such as "/mnt/data", for programs that were written for
	// another service. They exist before any code runs, and code can neither remove nor replace
	// them. Code reaches the same files by each name. os.getcwd returns Workdir. Files, Request.Dir
	// and the globs of artifacts replace an alias by Workdir as text, without following links.
	// Aliases require FeatureAliases. There are at most four. Each is an absolute, clean name of at
	// most 60 of [A-Za-z0-9._/-], in a directory other than "/". It must not be below or above
	// Workdir or another alias, nor below /proc, /sys, /dev, /tmp or /run. Create fails with
	// ErrUnsupported if the image contains anything of that name, even an empty directory, or if
	// code could write to the directory above it.
	Aliases []string
	// Ports lets programs outside the sandbox connect to servers in it, with Session.Dial. It
	// requires FeaturePorts, which a backend has only if its configuration allows it. If Ports is
	// false, Dial is refused and the session does not have the feature, even if Require makes sure
	// that its backend has it.
	Ports bool

	// Labels are stored at the backend, so that other processes can find the session by them. A key
	// has 1 to 63 of [a-z0-9._-] and does not begin with "execbroker.". A value has at most 255
	// bytes of printable ASCII.
	Labels map[string]string
	// Attributes are for rules, budgets and statistics. They are never sent to a backend.
	Attributes map[string]string
	// Subject identifies the user that the code belongs to. Splits send the same subject to the
	// same backend, and limits per user count by it. It is never sent to a backend.
	Subject string

	Limits  Limits        // limits of the sandbox
	Run     RunLimits     // default limits of its runs
	MaxRun  RunLimits     // highest limits of its runs; zero fields: those of Run with its defaults. If Run exceeds them, that is ErrInvalid
	Network NetworkPolicy // the zero value means no network

	// IdleTTL is how long the sandbox lives after its last use, even if every holder dies. Zero
	// means DefaultIdleTTL. A Run, Install or file transfer in progress by any holder counts as
	// use. Info and Refresh do not.
	IdleTTL time.Duration
	// MaxLife ends the sandbox this long after its creation, whether it is in use or not. Zero
	// means as long as the backend allows: Capabilities.MaxLife.
	MaxLife time.Duration

	// MinIsolation is the weakest acceptable boundary. Empty accepts any.
	MinIsolation Isolation
	// Require lists features that the session must have. It must have a PerLanguage feature in each
	// of its languages.
	Require []Feature
}

// Bounds returns the default and the highest limits of runs that s means, without zero fields. If a
// default of the library exceeds MaxRun, it is lowered to MaxRun.
func (s Spec) Bounds() (run, maxRun RunLimits) {
	run = s.Run.Or(RunLimits{WallTime: DefaultWallTime, OutputBytes: DefaultOutputBytes}.atMost(s.MaxRun))
	return run, s.MaxRun.Or(run)
}

// Packages names packages of one language in the notation of its installer, for example
// "numpy==2.3" or "@scope/name@1". They come from the source that the backend is configured with.
// So URLs ("git+https://example.org/x") and files ("./x.whl") are ErrInvalid on every backend.
// Names that are empty, that contain control characters, or that begin with "-", which installers
// take for an option, are ErrInvalid too.
type Packages struct {
	Language Language `json:"language"` // empty: the session's first language
	Names    []string `json:"names"`
}
