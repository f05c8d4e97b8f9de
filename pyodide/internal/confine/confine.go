// Package confine starts a program behind a boundary that the operating system keeps: namespaces
// without network and without other processes, a file system that holds nothing but the program and
// what it was given to read, no privilege and no way to one, resource limits, and a system-call
// filter that knows what a JavaScript engine needs and refuses the rest.
//
// It is the outer layer around Deno. The inner ones, Deno's permissions and the scrubbed realm, are
// in the host program. A bug in the engine that defeats those leaves an attacker here.
//
// On Linux there are two ways to the same end. [Bubblewrap] uses the program bwrap, which many
// distributions ship and keep set up so that unprivileged users may use it. [Namespaces] uses clone
// flags and this program itself: a copy of it is started under another name, arranges its
// surroundings and then becomes the program. Elsewhere there is only [None].
package confine

import (
	"errors"
	"time"
)

// Method is a way to confine a program.
type Method string

// The methods, the strongest first.
const (
	Bubblewrap Method = "bubblewrap"
	Namespaces Method = "namespaces"
	// None sets resource limits and no-new-privileges where the system has them, and nothing else.
	None Method = "none"
)

// ErrUnavailable says that a method cannot be used on this machine. The text around it says why.
var ErrUnavailable = errors.New("not available here")

// Program is what to start.
type Program struct {
	// Path is an absolute path. The libraries that it needs become visible with it.
	Path string
	Args []string // without the name of the program
	Env  []string // all of it: nothing is inherited
	// Read lists absolute paths of files and directories that the program can read, at the same
	// paths. With None it can read whatever this process can.
	Read   []string
	Limits Limits
}

// Limits are resource limits of the process. Zero fields leave what is inherited.
type Limits struct {
	DataBytes uint64        // private writable memory, whether touched or not
	CPUTime   time.Duration // of all threads together; whole seconds, rounded up. The signal that kills comes one second later
	Files     uint64        // open descriptors
	Threads   uint64        // threads and processes. Only where each process has a user of its own: see OwnUsers
	FileBytes uint64        // size of files written
}

// Layers says what is really on around a program that was started with a method.
type Layers struct {
	Namespaces   bool // user or privilege drop, mount, process, network, IPC and host name
	PrivateRoot  bool // only what Program names is in the file system, and nothing can be written
	SystemCalls  bool // the filter
	NoPrivileges bool // no capability, and no program that would give one
}

// Complete reports whether every layer is on.
func (l Layers) Complete() bool {
	return l.Namespaces && l.PrivateRoot && l.SystemCalls && l.NoPrivileges
}
