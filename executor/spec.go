package executor

import "time"

// The defaults are the same on every backend.
const (
	DefaultWallTime    = 30 * time.Second // RunLimits.WallTime
	DefaultOutputBytes = 16 << 20         // RunLimits.OutputBytes
	DefaultKeep        = 1 << 20          // Request.Keep
	DefaultIdleTTL     = time.Hour        // Spec.IdleTTL
)

// ReservedPrefix begins the label keys that are the library's own.
const ReservedPrefix = "execbroker."

// Spec describes a session to create. The zero value means the first language of the backend, its
// default template, no network, the default limits. No field means something on one backend only.
//
// Labels, Attributes and Subject are three fields because they go to three places. Labels are
// stored at the provider, which often cannot change them, so a Spec full of routing data would
// never fit a sandbox that was started ahead. What rules need is in Attributes, what sticks or
// counts by user is in Subject, and neither leaves the process.
type Spec struct {
	// Template is a logical name, such as "data-science", that the configuration of each backend
	// maps to what it has. Empty is the default of the backend.
	Template string
	// Languages lists what will be run; more than one requires FeatureMixedLanguages, but for
	// JavaScript and TypeScript that are one by FeatureTypeScript: who names either has both. The
	// first is the default of requests. None means the first language of the backend, which may
	// differ between backends.
	Languages []Language
	// Packages are installed before Create returns. They require FeaturePackages.
	Packages []Packages
	// Env is seen by every run. It requires FeatureEnv for each of the languages. Names are not
	// empty and without "=" and NUL, values without NUL.
	Env map[string]string
	// Aliases are other names of Workdir, such as "/mnt/data", for programs that were written for
	// another service. They are there before any code runs, and code can neither remove nor replace
	// them. Code gets to the same files by each name, os.getcwd says Workdir, and Files,
	// Request.Dir and the globs of artifacts take each name for Workdir, as text: no link is
	// followed for that. They require FeatureAliases. Each is absolute, clean, below another
	// directory than "/", of at most 60 of [A-Za-z0-9._/-]; there are at most four, none below or
	// above Workdir or another, and none below /proc, /sys, /dev, /tmp and /run. Create fails with
	// ErrUnsupported where an image has anything of that name, an empty directory too, or where
	// code could write to the directory above it.
	Aliases []string
	// Ports lets programs outside reach servers in the sandbox, by Session.Dial. It requires
	// FeaturePorts, which a backend has only if its configuration allows it. False: Dial is
	// refused, and the session does not have the feature, although Require may say that its backend
	// must.
	Ports bool

	// Labels are stored at the backend, where other processes find sessions by them. Keys:
	// [a-z0-9._-], 1 to 63, not beginning with "execbroker."; values: at most 255 bytes of
	// printable ASCII.
	Labels map[string]string
	// Attributes are for rules, budgets and statistics. They are never sent to a backend.
	Attributes map[string]string
	// Subject says who the code belongs to. Splits are sticky by it and limits per user count by
	// it. It is never sent to a backend.
	Subject string

	Limits  Limits        // of the sandbox
	Run     RunLimits     // default of its runs
	MaxRun  RunLimits     // ceiling of its runs; zero fields: those of Run after its defaults. Run beyond it is ErrInvalid
	Network NetworkPolicy // the zero value is no network

	// IdleTTL is how long the sandbox outlives its last use, even if every holder dies. Zero means
	// DefaultIdleTTL. A run, Install or file transfer in progress is use, whoever's it is; Info and
	// Refresh are not.
	IdleTTL time.Duration
	// MaxLife ends the sandbox this long after its creation, in use or not. Zero means as long as
	// the backend allows, Capabilities.MaxLife.
	MaxLife time.Duration

	// MinIsolation is the weakest acceptable boundary. Zero accepts any.
	MinIsolation Isolation
	// Require lists features that the session must have; those that are PerLanguage, in each of its
	// languages.
	Require []Feature
}

// Bounds returns what s means for its runs: the default of a run and the ceiling of all, without
// zero fields. A default of the library that is above a ceiling in MaxRun is that ceiling.
func (s Spec) Bounds() (run, maxRun RunLimits) {
	run = s.Run.Or(RunLimits{WallTime: DefaultWallTime, OutputBytes: DefaultOutputBytes}.atMost(s.MaxRun))
	return run, s.MaxRun.Or(run)
}

// Packages names packages of one language in the notation of its installer, for example
// "numpy==2.3" or "@scope/name@1". They come from where the backend is configured to look, so
// addresses ("git+https://example.org/x") and files ("./x.whl") are ErrInvalid on every backend. So
// are names that are empty, that begin with "-", which installers take for an option, and that hold
// control characters.
type Packages struct {
	Language Language `json:"language"` // empty: the session's first
	Names    []string `json:"names"`
}
