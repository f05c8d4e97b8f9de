package runner

import (
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/internal/seccomp"
	"github.com/execbroker/execbroker/internal/wire"
)

// Config is what a runner is created with. Later holders cannot change it.
type Config struct {
	// UID and GID are those of user code, in numbers: nothing is looked up. They must not be
	// root's, and no other process of the sandbox should have the UID. Zero means 1000.
	UID, GID int
	// OwnWorkdir makes the supervisor find or make the working directory while it still has every
	// right of root. One that belongs to somebody else than root says who user code is, instead of
	// UID and GID; any other is given to them.
	OwnWorkdir bool
	// SameUser runs user code as the user of the supervisor, which it can then signal and speak
	// for. Without it, a runner that is not root refuses to start.
	SameUser bool

	// Workdir, Home and Temp are made if they are not there, and must be writable for the user.
	// Empty means executor.Workdir, /tmp/home and /tmp.
	Workdir, Home, Temp string
	// Aliases are executor.Spec.Aliases: links to Workdir that are made before there is user code.
	// The directories above each that are there belong to root, and nobody else can write to them;
	// the others are made. Otherwise the runner refuses to start with ErrUnsupported, and so it
	// does where something else has the name of an alias. With SameUser there are none.
	Aliases []string
	// Ports lets holders connect to servers in the sandbox: executor.Spec.Ports. The ports at which
	// root or the user of the supervisor listens before there is user code stay closed: they are
	// the runner's own, and those of daemons of the provider.
	Ports bool
	// Env is added to the environment of every run, which otherwise has PATH of the image, HOME,
	// TMPDIR, TZ, LANG and USER only.
	Env map[string]string
	// Paths are directories in which an interpreter finds packages before its own. They need not
	// exist yet.
	Paths map[executor.Language][]string
	// Languages lists what will be run. The interpreter of the first is started ahead.
	Languages []executor.Language
	// Node is the program for JavaScript. Empty means the first "node" or "nodejs" in PATH.
	Node string

	MaxRun  executor.RunLimits // ceiling of all runs; zero fields: none
	IdleTTL time.Duration      // the runner ends when nothing has used it for so long; zero: never
	MaxLife time.Duration      // the runner ends when it is so old; zero: never
	Grace   time.Duration      // from interrupt to kill, three times that for code that gets no processor; zero means 2 s

	// Filtered says that the creator has given the sandbox the profile of package seccomp. Where
	// that does not take effect, the runner installs the part of it that narrows what code can take
	// from the machine, if its Python can. Zero: only that counts.
	Filtered bool
	// CodeFilters lets code install filters of system calls. For a sandbox that has its kernel for
	// itself, or where somebody has accepted that such filters are memory of the whole machine.
	// Zero: code finds a kernel without them.
	CodeFilters bool
	// AllowWeak lets the sandbox start where neither filter is in force. Info.Degraded says so
	// then. Zero: it is refused with ErrUnsupported.
	AllowWeak bool

	// Rlimits are set for user code, soft and hard, by the names of setrlimit in lower case:
	// "nofile", "core", "fsize".
	Rlimits map[string]int64
	// OOMScore is the oom_score_adj of user code, so that the kernel does not choose the
	// supervisor. Zero means 500.
	OOMScore int
	// Names is the socket at which the C library asks for names of users, for a sandbox whose files
	// with names cannot be written: a path in a directory that only the supervisor's user can write
	// to. Empty: the image has to name the user of user code.
	Names string
	// Guest is set for a runner that was started as GuestCommand. Nil: it was started as
	// Start.Command.
	Guest *Guest

	socket   string // where a bridge finds the supervisor; empty: no further holders. A Guest has none
	compiled *compiled
	compile  bool // the supervisor is to answer with what compiled is for others
}

// addPackages lets Python find what is installed, also one that the code starts.
func (c *Config) addPackages() {
	c.Env = packages.Env(c.Env)
	c.Paths = map[executor.Language][]string{executor.Python: {packages.Dirs[executor.Python]}}
}

// encode returns the configuration as the runner reads it.
func (c Config) encode() wire.Map {
	m := wire.Map{"parts": parts(), "compile": c.compile, "ports": c.Ports, "same_user": c.SameUser, "own": c.OwnWorkdir, "filtered": c.Filtered, "allow_weak": c.AllowWeak, "idle": int64(c.IdleTTL), "life": int64(c.MaxLife)}
	text := func(key, v string) {
		if v != "" {
			m[key] = v
		}
	}
	number := func(key string, v int64) {
		if v != 0 {
			m[key] = v
		}
	}
	number("uid", int64(c.UID))
	number("gid", int64(c.GID))
	text("workdir", c.Workdir)
	text("home", c.Home)
	text("temp", c.Temp)
	text("node", c.Node)
	text("socket", c.socket)
	text("names", c.Names)
	if len(c.Aliases) > 0 {
		m["aliases"] = wire.List(c.Aliases)
	}
	if c.compiled != nil {
		m["compiled"] = c.compiled.parts
	}
	number("max_wall", int64(c.MaxRun.WallTime)) // executor.NoLimit is -1, which means the same there
	number("max_output", c.MaxRun.OutputBytes)
	number("grace", int64(c.Grace))
	number("oom_score", int64(c.OOMScore))
	filters := wire.Map{}
	for machine, program := range narrow(c.CodeFilters) {
		filters[machine] = program
	}
	m["filters"] = filters
	if g := c.Guest; g != nil {
		m["parts"], m["network"], m["hide"] = guestParts(), g.Network, wire.List(g.Hide)
		delete(m, "socket")
	}
	m["env"] = wire.Texts(c.Env)
	rlimits, paths, languages := wire.Map{}, wire.Map{}, []any{}
	for k, v := range c.Rlimits {
		rlimits[k] = v
	}
	for k, v := range c.Paths {
		paths[string(k)] = wire.List(v)
	}
	for _, l := range c.Languages {
		languages = append(languages, string(l))
	}
	m["rlimits"], m["paths"], m["languages"] = rlimits, paths, languages
	return m
}

// narrow returns the filters that the supervisor installs, by the name that uname has for an
// architecture.
func narrow(codeFilters bool) map[string][]byte {
	programs, err := seccomp.Profile{CodeFilters: codeFilters}.Narrow()
	if err != nil {
		panic(err) // its numbers are constants
	}
	return programs
}

// hello is what a runner says of itself.
type hello struct {
	Python    string              // version
	Workdir   string              // where artifacts are looked for
	Languages []executor.Language // that can be run
	Degraded  []string            // protections that are missing here, in words
	Expires   time.Time           // when it will end unless it is used; zero: never
	Compiled  *compiled           // if Config asked for it
}

// status is what a runner does now.
type status struct {
	Expires time.Time     // as in Info
	Runs    int           // in progress, whoever's
	CPU     time.Duration // that all processes of the sandbox have used
}
