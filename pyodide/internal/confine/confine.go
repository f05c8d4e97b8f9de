// Package confine starts a program behind a boundary of the operating system: namespaces without a
// network and without other processes, a file system that contains only the program and the files
// that it may read, no privileges and no way to gain any, resource limits, and a system-call filter
// that allows what a JavaScript engine needs and refuses the rest.
//
// It is the outer layer around Deno. The inner layers, Deno's permissions and the scrubbed realm,
// are in the host program. If a bug in the engine breaks those, the attacker is still inside this
// layer.
//
// On Linux there are two methods. [Bubblewrap] uses the program bwrap, which many distributions
// ship and configure for unprivileged users. [Namespaces] uses clone flags and this program itself:
// a copy of it is started under another name, sets up the confinement and then executes the
// program. Other systems have only [None].
// surroundings and then becomes the program. Elsewhere there is only [None].
package confine

import (
	"errors"
	"time"
)

// Method is a way to confine a program.
type Method string

// The methods, in order of strength.
const (
	Bubblewrap Method = "bubblewrap"
	Namespaces Method = "namespaces"
	// None only sets resource limits and no-new-privileges, on systems that have them.
	None Method = "none"
)

// ErrUnavailable says that a method cannot be used on this machine. The surrounding text says why.
var ErrUnavailable = errors.New("not available here")

// Program is the program to start.
type Program struct {
	// Path is an absolute path. The libraries that the program needs become visible too.
	Path string
	Args []string // without the name of the program
	Env  []string // the whole environment: nothing is inherited
	// Read lists absolute paths of files and directories that the program can read, at the same
	// paths. With None it can read everything that this process can.
	Read   []string
	Limits Limits
}

// Limits are resource limits of the process. Zero fields keep the inherited limits.
type Limits struct {
	DataBytes uint64        // private writable memory, used or not
	CPUTime   time.Duration // of all threads together, rounded up to whole seconds. SIGKILL comes one second later
	Files     uint64        // open descriptors
	Threads   uint64        // threads and processes. Only if each process has a separate user: see OwnUsers
	FileBytes uint64        // size of written files
}

// Layers says which layers a method puts around a program.
type Layers struct {
	Namespaces   bool // user namespace or dropped privileges; mount, process, network, IPC and host name namespaces
	PrivateRoot  bool // the file system has only the paths in Program, read-only
	SystemCalls  bool // the system-call filter
	NoPrivileges bool // no capabilities, and no program that would grant any
}

// Complete reports whether every layer is active.
func (l Layers) Complete() bool {
	return l.Namespaces && l.PrivateRoot && l.SystemCalls && l.NoPrivileges
}
